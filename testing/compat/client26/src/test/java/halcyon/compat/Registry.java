package halcyon.compat;

/** The two ways in which a 2.6 client finds the cluster. */
enum Registry {
  ZOOKEEPER,
  RPC
}
