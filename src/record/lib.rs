//! Record batches: view, check, build, compress; magic 0, 1 and 2.
