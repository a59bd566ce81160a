//! What the router must get right, on a table as users write it.

mod accuracy;
mod hostile;
mod stored;
mod table;
