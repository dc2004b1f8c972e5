//! What a broker knows of the cluster, and where replicas are placed.
