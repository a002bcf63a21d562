"""Studies of papers that train nothing: what label counts alone tell, on many partitions."""
