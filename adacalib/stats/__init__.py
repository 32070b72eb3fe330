"""PySpark only: DataFrame in, DataFrame out. No reading, no writing, no session."""
