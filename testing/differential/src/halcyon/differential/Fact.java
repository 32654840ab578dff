package halcyon.differential;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** A written fact of HBase's interface: a method that takes a fresh table, with family f as described here and a plain family g. */
@Retention(RetentionPolicy.RUNTIME)
@interface Fact {
  /** What holds, in a sentence. */
  String value();

  int versions() default 1;

  int minVersions() default 0;

  int ttlSeconds() default Integer.MAX_VALUE;

  /** As KeepDeletedCells. */
  String keep() default "FALSE";

  /** Start keys of further regions. */
  String[] splits() default {};
}
