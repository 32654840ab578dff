package halcyon.coprocessor;

/** Numbers of base/proto/proto/Coprocessor.proto. */
public final class Methods {
  public static final int CONFIGURE = 1, PING = 2, NOTE = 3;
  public static final int CHECK_TABLE = 8, LOAD = 9, UNLOAD = 10, EXECUTE = 11, PRE_GET = 12, POST_GET = 13, WHOLE_GET = 14, PRE_MUTATE = 15,
    PRE_BATCH = 16, POST_MUTATE = 17, PRE_CHECK = 18, PRE_CHECK_LOCKED = 19, POST_CHECK = 20, PRE_SCANNER_OPEN = 21, SCANNER_OPEN = 22,
    SCANNER_NEXT = 23, SCANNER_CLOSE = 24, STORE_BEGIN = 25, STORE_OPEN = 26, STORE_NEXT = 27, STORE_END = 28, READ_OPTIONS = 29,
    PRE_CLOSE = 30, BULK_LOAD = 31;
  public static final int READ_ROW = 32, OPEN_SCAN = 33, NEXT_ROWS = 34, CLOSE_SCAN = 35, MUTATE = 36, CHECK_AND_MUTATE = 37, LOCK_ROW = 38,
    UNLOCK_ROW = 39, FLUSH = 40, COUNTERS = 41, NEXT_CELLS = 42;

  private Methods() {
  }
}
