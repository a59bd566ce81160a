//! The handlers of the API, one module for each subject. They know the server; no part of it knows them.

pub(crate) mod about;
pub(crate) mod act;
pub(crate) mod action;
pub(crate) mod app;
pub(crate) mod decision;
pub(crate) mod definition;
pub(crate) mod detail;
pub(crate) mod effect;
pub(crate) mod learned;
pub(crate) mod login;
pub(crate) mod metrics;
pub(crate) mod notice;
pub(crate) mod rerun;
pub(crate) mod resource;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod tree;
pub(crate) mod webhook;
