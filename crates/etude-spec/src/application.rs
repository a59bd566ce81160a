//! Agent Applications.
