//! Every command of `bin/`.
