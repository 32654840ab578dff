package halcyon.compat.histories;

/** What the rows of a history are: lists of ids, numbers, many columns with one number, or versions whose timestamps are numbers. */
enum Kind {
  LISTS, REGISTERS, ROWS, VERSIONS
}
