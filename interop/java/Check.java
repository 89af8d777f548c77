import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** What every client of this directory demands. Timestamps have 16 bytes. */
final class Check {
  private final Set<Long> ids = new HashSet<>();
  private byte[] last = new byte[16];

  /** Demands a timestamp that is larger than all before. */
  void ascending(Object answer) {
    byte[] ts = (byte[]) answer;
    demand(ts.length == 16 && Arrays.compareUnsigned(last, ts) < 0, "timestamp " + Arrays.toString(ts));
    last = ts;
  }

  /** Demands IDs that nobody had before: an integer, or a list of them. */
  void distinct(Object answer) {
    if (answer instanceof List<?> list) {
      list.forEach(this::distinct);
      return;
    }
    long id = (Long) answer;
    demand(id > 1L << 53 && ids.add(id), "ID " + id);
  }

  /** Demands an error whose message begins with a word. */
  void refused(Runnable call, String word) {
    try {
      call.run();
    } catch (RuntimeException e) {
      demand(e.getMessage().startsWith(word), e.toString());
      return;
    }
    throw new AssertionError("no error " + word);
  }

  void demand(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  void done(String name) {
    System.out.println(name + ": " + ids.size() + " IDs");
  }
}
