package io.isotone;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A client of an Isotone cluster. It is safe for concurrent use; one for each process is enough.
 *
 * <p>Calls that are made while a request is under way share the next one. It follows the leader, and repeats requests
 * until they are answered or late; that is safe, because a timestamp that nobody has received orders nothing. It
 * belongs to one cluster for life, and hands out no timestamp that is not above all that it had received before.
 */
public final class IsotoneClient extends Calls implements AutoCloseable {
  private IsotoneClient(Core core) {
    super(core, core.options.mode, Timestamp.ZERO, core.options.timeout);
  }

  /** Makes a client with default options, of the cluster with nodes at these addresses, {@code host:port}. */
  public static IsotoneClient connect(String... addrs) {
    return open(Options.of(addrs));
  }

  /**
   * Makes a client, and waits until a leader is connected. It fails as calls do. The options must not be changed any
   * more.
   */
  public static IsotoneClient open(Options options) {
    options.validate();
    Core core = new Core(options);
    core.execute(new Router(core));
    IsotoneClient client = new IsotoneClient(core);
    if (options.lazy) {
      return client;
    }
    try {
      core.ready.get(options.timeout.toMillis(), TimeUnit.MILLISECONDS);
      return client;
    } catch (TimeoutException e) {
      IsotoneException late = core.overdue(null);
      client.close();
      throw late;
    } catch (ExecutionException e) {
      client.close();
      throw ((IsotoneException) e.getCause()).here();
    } catch (InterruptedException e) {
      client.close();
      Thread.currentThread().interrupt();
      throw new IsotoneException(IsotoneException.Code.CANCELED, "the caller was interrupted");
    }
  }

  /** {@return the ID of the cluster, 16 hexadecimal digits, or "" until a node has reported it} */
  public String cluster() {
    return core.cluster();
  }

  /** Ends the client. Calls that wait, and later ones, fail with {@code CLOSED}. */
  @Override
  public void close() {
    core.close();
  }
}
