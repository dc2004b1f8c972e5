//! Kafka's znodes: paths, JSON, the store trait, the real store, the fake.
