//! Producer, consumer and admin client as a library.
