package halcyon.coprocessor;

import java.util.ArrayDeque;
import java.util.Deque;

/** What one connection keeps between the calls of one operation: an object for each batch or check that has begun and not ended. */
public final class CallState {
  private final Deque<Object> begun = new ArrayDeque<>();
  private int depth;

  /** A call that is not made on behalf of another one comes. */
  void begin() {
    depth = 0;
  }

  void enter() {
    depth++;
  }

  void leave() {
    depth--;
  }

  /** Forgets parts of a type that earlier operations left, if no other operation of this connection is running. */
  public void beginOperation(Class<?> type) {
    if (depth == 1) begun.removeIf(type::isInstance);
  }

  public void push(Object part) {
    begun.push(part);
  }

  /** The last one of the type that has begun. */
  public <T> T peek(Class<T> type) {
    for (Object part : begun) {
      if (type.isInstance(part)) return type.cast(part);
    }
    throw new IllegalStateException("no " + type.getSimpleName() + " has begun");
  }

  /** Ends the last one of the type, and what began after it and was not ended. */
  public <T> T pop(Class<T> type) {
    T part = peek(type);
    while (begun.pop() != part) {
      // It failed in between.
    }
    return part;
  }
}
