//! Tests that look at two streams and what lies between them.

mod chaos;
mod exploration;
mod explore;
mod hostile;
mod property;
mod side;
mod world;
