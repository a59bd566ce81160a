//! Tests of the server over real sockets, in this process.

mod browser;
mod details;
mod door;
mod figures;
mod forms;
mod gallery;
mod keys;
mod learned;
mod limits;
mod mcp;
mod notices;
mod oauth;
mod page_forms;
mod page_live;
mod page_tree;
mod pages;
mod runs;
mod schedules;
mod stages;
mod streams;
mod support;
mod tokens;
mod waiting;
mod webhooks;
mod wire;
