import java.io.FileOutputStream;
import java.security.KeyStore;
import java.util.Arrays;
import javax.crypto.SecretKey;
import javax.crypto.spec.SecretKeySpec;

/**
 * Key stores for base/crypto/testdata: java Stores.java DIR. Keys: "master" 16 bytes 01, "second" 32 bytes 02, "des" a DES key. The
 * password is "st0re-pass" everywhere, except in the stores named "each", where every key has its own: its name and "-pass".
 */
public class Stores {
  public static void main(String[] args) throws Exception {
    for (String type : new String[] {"JCEKS", "PKCS12"}) {
      write(args[0], type, "same", false);
      write(args[0], type, "each", true);
    }
    System.setProperty("keystore.pkcs12.legacy", "true");
    write(args[0], "PKCS12", "legacy", false);
  }

  private static void write(String dir, String type, String name, boolean each) throws Exception {
    KeyStore store = KeyStore.getInstance(type);
    store.load(null, null);
    put(store, "Master", key(16, 1, "AES"), each);
    put(store, "second", key(32, 2, "AES"), each);
    put(store, "des", key(8, 3, "DES"), each);
    try (FileOutputStream out = new FileOutputStream(dir + "/" + name + "." + type.toLowerCase())) {
      store.store(out, "st0re-pass".toCharArray());
    }
  }

  private static SecretKey key(int length, int value, String algorithm) {
    byte[] bytes = new byte[length];
    Arrays.fill(bytes, (byte) value);
    return new SecretKeySpec(bytes, algorithm);
  }

  private static void put(KeyStore store, String name, SecretKey key, boolean each) throws Exception {
    String password = each ? name + "-pass" : "st0re-pass";
    store.setEntry(name, new KeyStore.SecretKeyEntry(key), new KeyStore.PasswordProtection(password.toCharArray()));
  }
}
