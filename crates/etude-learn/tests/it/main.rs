//! Learning from traces of a small shop.

mod defaults;
mod files;
mod loops;
mod many;
mod rules;
mod several;
mod shop;
