//! Accuracy and robustness of the router, on a table as users write it.

mod accuracy;
mod hostile;
mod stored;
mod table;
