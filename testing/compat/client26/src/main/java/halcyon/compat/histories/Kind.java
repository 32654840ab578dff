package halcyon.compat.histories;

/** What the rows of a history are: lists of ids, numbers, or many columns with one number. */
enum Kind {
  LISTS, REGISTERS, ROWS
}
