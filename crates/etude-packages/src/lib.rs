//! Packages of skills and applications: discovery, the user's approvals, and commands that run as they were approved.
//!
//! Nothing here runs a program of a package that the user has neither written nor approved: [`trust`] binds an approval to
//! the content of a package, and [`applications`] runs exactly that content.

pub mod applications;
pub mod approve;
pub mod skills;
pub mod trust;

mod deadline;
mod ledger;
