//! What is learned from traces of a small shop.

mod files;
mod many;
mod rules;
mod shop;
