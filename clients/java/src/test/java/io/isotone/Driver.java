package io.isotone;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

/** The driver of this client for the conformance kit; conformance/README.md describes drivers. */
final class Driver {
  private static final String[] FEATURES =
      "connections queue_max credentials tls client_certificate above lazy events generator generator_clock".split(" ");

  private record Driven(IsotoneClient client, Calls calls) {}

  private record Made(Generator generator, AtomicLong clock) {}

  private interface Step {
    JsonObject run();
  }

  private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
  private final Map<String, Driven> clients = new ConcurrentHashMap<>();
  private final Map<String, Made> generators = new ConcurrentHashMap<>();
  private final Map<String, Credentials> secrets = new ConcurrentHashMap<>();
  private final Map<Integer, Runnable> cancels = new ConcurrentHashMap<>();
  private final ExecutorService threads = Executors.newCachedThreadPool();

  private Driver() {}

  /** Carries out the commands of the standard input until it ends. */
  public static void main(String[] args) throws IOException {
    Driver driver = new Driver();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      driver.begin(new Gson().fromJson(line, JsonObject.class));
    }
    System.exit(0);
  }

  private void begin(JsonObject c) {
    boolean plural = c.has("method") && c.get("method").getAsString().endsWith("s");
    switch (text(c, "do")) {
      case "call" -> {
        if (plural || text(c, "method").endsWith("s64")) {
          async(c);
        } else {
          onThread(c, () -> call(c).join());
        }
      }
      case "new" -> onThread(c, () -> open(c));
      case "generator" -> onThread(c, () -> lease(c));
      case "next" -> onThread(c, () -> ids(generators.get(text(c, "generator")).generator
          .next(c.get("count").getAsInt(), deadline(c))));
      default -> answer(c, () -> now(c));
    }
  }

  private void async(JsonObject c) {
    try {
      CompletableFuture<JsonObject> future = call(c);
      future.whenComplete((ok, why) -> answer(c, () -> future.join()));
    } catch (IsotoneException e) {
      answer(c, () -> {
        throw e;
      });
    }
  }

  private void onThread(JsonObject c, Step step) {
    CountDownLatch began = new CountDownLatch(1);
    threads.execute(() -> {
      cancels.put(c.get("id").getAsInt(), Thread.currentThread()::interrupt);
      began.countDown();
      answer(c, step);
    });
    try {
      began.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private void answer(JsonObject c, Step step) {
    JsonObject line = new JsonObject();
    line.add("id", c.get("id"));
    try {
      line.add("ok", step.run());
    } catch (RuntimeException e) {
      Throwable why = e instanceof CompletionException && e.getCause() != null ? e.getCause() : e;
      line.addProperty("error", why instanceof IsotoneException told ? told.code().text()
          : why instanceof CancellationException ? "canceled"
          : why instanceof UnsupportedOperationException ? "unsupported" : "internal");
      line.addProperty("message", String.valueOf(why.getMessage()));
    }
    cancels.remove(c.get("id").getAsInt());
    write(line);
  }

  private void write(JsonObject line) {
    synchronized (out) {
      out.println(line);
    }
  }

  private JsonObject now(JsonObject c) {
    Made made = generators.get(text(c, "generator"));
    Driven driven = clients.get(text(c, "client"));
    switch (text(c, "do")) {
      case "hello" -> {
        return new Gson().toJsonTree(Map.of("protocol", 1, "client", "isotone-java", "version", "0.1.0",
            "features", FEATURES)).getAsJsonObject();
      }
      case "sync" -> { }
      case "cancel" -> cancels.getOrDefault(c.get("call").getAsInt(), () -> { }).run();
      case "cluster" -> {
        return object("cluster", driven.client.cluster());
      }
      case "credentials" -> secrets.put(text(c, "client"), new Credentials(text(c, "user"), text(c, "secret")));
      case "close" -> driven.client.close();
      case "now" -> made.clock.set(c.get("now_ms").getAsLong());
      case "try" -> {
        return ids(made.generator.tryNext(c.get("count").getAsInt()));
      }
      case "lease" -> {
        return lease(made.generator);
      }
      case "end" -> made.generator.close();
      default -> throw new UnsupportedOperationException("the command " + text(c, "do"));
    }
    return new JsonObject();
  }

  private JsonObject open(JsonObject c) {
    JsonObject in = c.getAsJsonObject("options");
    String name = text(c, "client");
    String[] addrs = new Gson().fromJson(in.get("addrs"), String[].class);
    Options options = Options.of(addrs).timeout(deadline(c)).cluster(text(in, "cluster")).mode(mode(in))
        .serverName("").events(events(name));
    if (in.has("floor")) {
      options.floor(Timestamp.parse(text(in, "floor")));
    }
    if (in.has("connections")) {
      options.connections(in.get("connections").getAsInt());
    }
    if (in.has("queue_max")) {
      options.queueMax(in.get("queue_max").getAsInt());
    }
    if (in.has("dial_timeout_ms")) {
      options.dialTimeout(Duration.ofMillis(in.get("dial_timeout_ms").getAsLong()));
    }
    if (in.has("lazy") && in.get("lazy").getAsBoolean()) {
      options.lazy();
    }
    if (in.has("user")) {
      secrets.put(name, new Credentials(text(in, "user"), text(in, "secret")));
      options.credentials(() -> secrets.get(name));
    }
    if (in.has("tls")) {
      JsonObject tls = in.getAsJsonObject("tls");
      options.serverName(text(tls, "server_name")).tls(
          tls.has("cert") ? Tls.context(text(tls, "ca"), text(tls, "cert"), text(tls, "key"))
              : Tls.trusting(text(tls, "ca")));
    }
    IsotoneClient client = IsotoneClient.open(options);
    clients.put(name, new Driven(client, client));
    return new JsonObject();
  }

  private Events events(String client) {
    return new Events() {
      @Override
      public void leader(String addr) {
        tell("leader", addr, "");
      }

      @Override
      public void rejected(String addr, IsotoneException why) {
        tell("rejected", addr, why.code().text());
      }

      private void tell(String event, String addr, String error) {
        write(new Gson().toJsonTree(Map.of("event", event, "client", client, "addr", addr, "error", error))
            .getAsJsonObject());
      }
    };
  }

  /** Begins a call: those for one block the calling thread, the others do not. */
  private CompletableFuture<JsonObject> call(JsonObject c) {
    Calls calls = clients.get(text(c, "client")).calls.within(deadline(c));
    if (c.has("mode")) {
      calls = calls.in(mode(c));
    }
    if (c.has("above")) {
      calls = calls.above(Timestamp.parse(text(c, "above")));
    }
    long count = c.has("count") ? c.get("count").getAsLong() : 1;
    CompletableFuture<?> future;
    CompletableFuture<JsonObject> result;
    switch (text(c, "method")) {
      case "timestamp" -> {
        return CompletableFuture.completedFuture(first(calls.timestamp(), 1));
      }
      case "timestamp64" -> {
        return CompletableFuture.completedFuture(first(calls.timestamp64(), 1));
      }
      case "id" -> {
        return CompletableFuture.completedFuture(ids(calls.id()));
      }
      case "timestamps" -> {
        CompletableFuture<Timestamp.Range> range = calls.timestampsAsync(count);
        future = range;
        result = range.thenApply(r -> first(r.first(), r.count()));
      }
      case "timestamps64" -> {
        CompletableFuture<Timestamp64.Range> range = calls.timestamps64Async(count);
        future = range;
        result = range.thenApply(r -> first(r.first(), r.count()));
      }
      case "ids" -> {
        CompletableFuture<long[]> list = calls.idsAsync(Math.toIntExact(count));
        future = list;
        result = list.thenApply(Driver::ids);
      }
      default -> throw new UnsupportedOperationException("the method " + text(c, "method"));
    }
    cancels.put(c.get("id").getAsInt(), () -> future.cancel(true));
    return result;
  }

  private JsonObject lease(JsonObject c) {
    Generator.Options options = new Generator.Options();
    AtomicLong clock = new AtomicLong();
    if (c.has("lease_ms")) {
      options.lease(Duration.ofMillis(c.get("lease_ms").getAsLong()));
    }
    if (c.has("worker")) {
      options.worker(c.get("worker").getAsInt());
    }
    if (c.has("now_ms")) {
      clock.set(c.get("now_ms").getAsLong());
      options.clock(clock::get);
    }
    if (c.has("ahead_max_ms")) {
      options.aheadMax(Duration.ofMillis(c.get("ahead_max_ms").getAsLong()));
    }
    Generator generator = clients.get(text(c, "client")).client.within(deadline(c)).generator(options);
    generators.put(text(c, "generator"), new Made(generator, clock));
    return lease(generator);
  }

  private static JsonObject lease(Generator g) {
    return new Gson().toJsonTree(Map.of("worker", g.worker(), "start", g.leaseStart(), "end", g.leaseEnd()))
        .getAsJsonObject();
  }

  private static JsonObject first(Object first, long count) {
    JsonObject ok = object("first", first.toString());
    ok.addProperty("count", count);
    return ok;
  }

  private static JsonObject ids(long... ids) {
    JsonArray list = new JsonArray();
    Arrays.stream(ids).forEach(id -> list.add(Long.toString(id)));
    JsonObject ok = new JsonObject();
    ok.add("ids", list);
    return ok;
  }

  private static JsonObject object(String name, String value) {
    JsonObject object = new JsonObject();
    object.addProperty(name, value);
    return object;
  }

  private static ReadMode mode(JsonObject from) {
    return from.has("mode") ? ReadMode.valueOf(text(from, "mode").toUpperCase(Locale.ROOT)) : ReadMode.DEFAULT;
  }

  private static Duration deadline(JsonObject c) {
    return Duration.ofMillis(c.get("deadline_ms").getAsLong());
  }

  private static String text(JsonObject from, String name) {
    JsonElement value = from.get(name);
    return value == null ? "" : value.getAsString();
  }
}
