//! What is learned from traces of a small shop.

mod files;
mod rules;
mod shop;
