//! Packages of skills and applications: discovery, the user's approvals, and commands that run exactly as approved.
//!
//! A program of a package runs only if the user wrote or approved it: [`trust`] binds an approval to the content of a package,
//! and [`applications`] runs exactly that content.

pub mod applications;
pub mod approve;
pub mod skills;
pub mod trust;

mod deadline;
mod ledger;
