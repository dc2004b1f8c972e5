//! Frames, headers, the admission check, and the versions we serve.
