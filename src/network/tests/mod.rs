//! Real sockets against a service that does as each request says.

mod addresses;
mod answers;
mod bad_input;
mod limits;
mod outgoing;
mod stop;
mod support;
mod tls;
