//! Partition and replica states, elections, topic creation and deletion. Decides; does nothing.
