package halcyon.coprocessor;

/** Where HBase would abort its region server, this ends the call, and the server then ends this JVM. */
public final class JvmAborts extends RuntimeException {
  private static final long serialVersionUID = 1;

  public JvmAborts(String why, Throwable cause) {
    super(why, cause);
  }
}
