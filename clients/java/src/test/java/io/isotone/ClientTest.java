package io.isotone;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.isotone.IsotoneException.Code;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;

/** What the conformance kit cannot see, as it is of this language. */
final class ClientTest {
  private static Code codeOf(Throwable e) {
    return ((IsotoneException) (e instanceof CompletionException ? e.getCause() : e)).code();
  }

  @Test
  void interruptedCallerGetsCanceledAndKeepsItsFlag() throws Exception {
    try (FakeNode node = new FakeNode(); IsotoneClient client = IsotoneClient.connect(node.addr())) {
      node.instead.put("TS", "");
      BlockingQueue<Object> ended = new LinkedBlockingQueue<>();
      Thread caller = new Thread(() -> {
        IsotoneException e = assertThrows(IsotoneException.class, client::timestamp);
        ended.add(e.code());
        ended.add(Thread.currentThread().isInterrupted());
      });
      caller.start();
      node.requests.take();
      caller.interrupt();
      assertEquals(Code.CANCELED, ended.take());
      assertEquals(true, ended.take());
    }
  }

  @Test
  void keptConnectionIsClosedIfTheClientIsClosedBeforeItAsks() throws Exception {
    try (FakeNode node = new FakeNode()) {
      Options options = Options.of(node.addr());
      Core open = new Core(options);
      Core closed = new Core(options);
      closed.close();
      Node asked = new Node(node.addr());
      Wire kept = Wire.open(open, node.addr(), "PING");
      asked.inquiry = kept;
      new Router(closed).ask(asked);
      assertThrows(IOException.class, () -> kept.ask(open, "PING"));
      open.close();
    }
  }

  @Test
  void blockingCallWithinACallbackIsRefused() throws Exception {
    CountDownLatch added = new CountDownLatch(1);
    Events events = new Events() {
      @Override
      public void answered(String addr, int calls, long count, Duration took) {
        try {
          added.await(); // the callback runs on this thread then
        } catch (InterruptedException e) {
          throw new IllegalStateException(e);
        }
      }
    };
    try (FakeNode node = new FakeNode();
        IsotoneClient client = IsotoneClient.open(Options.of(node.addr()).events(events))) {
      CompletableFuture<Timestamp.Range> within = client.timestampAsync().thenApply(t -> client.timestamps(2));
      added.countDown();
      CompletionException e = assertThrows(CompletionException.class, within::join);
      assertInstanceOf(IllegalStateException.class, e.getCause());
      assertTrue(client.timestampAsync().thenCompose(t -> client.timestampAsync()).join().time() > 0);
    }
  }

  @Test
  void callsWithoutAnswerAreBoundedAndEnd() throws Exception {
    try (FakeNode node = new FakeNode()) {
      IsotoneClient client = IsotoneClient.open(Options.of(node.addr()).queueMax(2));
      node.instead.put("TS", "");
      List<CompletableFuture<Timestamp>> calls = new ArrayList<>();
      calls.add(client.timestampAsync());
      node.requests.take();
      calls.add(client.timestampAsync());
      calls.add(client.timestampAsync());
      assertEquals(Code.OVERLOADED, codeOf(assertThrows(CompletionException.class, client.timestampAsync()::join)));
      calls.get(1).cancel(true); // makes room
      calls.add(client.timestampAsync());
      client.close();
      assertTrue(calls.get(1).isCancelled());
      for (int i : new int[] {0, 2, 3}) {
        assertEquals(Code.CLOSED, codeOf(assertThrows(CompletionException.class, calls.get(i)::join)));
      }
      assertEquals(Code.CLOSED, assertThrows(IsotoneException.class, client::timestamp).code());
    }
  }

  @Test
  void callsGoOnAfterAllThatWaitedWereCanceled() throws Exception {
    try (FakeNode node = new FakeNode();
        IsotoneClient client = IsotoneClient.open(Options.of(node.addr()).queueMax(2))) {
      node.instead.put("TS", "");
      CompletableFuture<Timestamp> first = client.timestampAsync();
      node.requests.take();
      for (int i = 0; i < 10; i++) {
        client.timestampAsync().cancel(true);
      }
      CompletableFuture<Timestamp.Range> last = client.timestampsAsync(5);
      node.instead.clear();
      node.cut();
      assertTrue(first.join().isBefore(last.join().first()));
      assertEquals(5, last.join().count());
    }
  }

  @Test
  void lateCallNamesTheNode() throws Exception {
    CountDownLatch refused = new CountDownLatch(1);
    Events events = new Events() {
      @Override
      public void retried(String addr, Exception why) {
        refused.countDown();
      }
    };
    try (FakeNode node = new FakeNode();
        IsotoneClient client = IsotoneClient.open(Options.of(node.addr()).events(events))) {
      node.instead.put("TS", "-TRYAGAIN too busy\r\n");
      client.timestampsAsync(1);
      refused.await();
      Calls hasty = client.within(Duration.ofMillis(20));
      IsotoneException e = assertThrows(IsotoneException.class, () -> hasty.timestamps(2));
      assertEquals(Code.DEADLINE_EXCEEDED, e.code());
      assertTrue(e.getMessage().contains("; " + node.addr() + ": "), e.getMessage());
    }
  }

  @Test
  void floorGoesToNewConnections() throws Exception {
    try (FakeNode node = new FakeNode(); IsotoneClient client = IsotoneClient.connect(node.addr())) {
      Timestamp last = client.timestamps(3).last();
      assertEquals("TS 3", node.requests.take());
      node.cut();
      client.timestamps(2);
      assertEquals("TS 2 FLOOR " + last, node.requests.take());
    }
  }

  @Test
  void eventsThatThrowHarmNothing() throws IOException {
    Logger log = Logger.getLogger("io.isotone");
    log.setLevel(Level.OFF); // it warns
    Events events = new Events() {
      @Override
      public void answered(String addr, int calls, long count, Duration took) {
        throw new IllegalStateException("by the test");
      }
    };
    try (FakeNode node = new FakeNode();
        IsotoneClient client = IsotoneClient.open(Options.of(node.addr()).events(events))) {
      assertTrue(client.timestamp().isBefore(client.timestampAsync().join()));
    }
  }

  @Test
  void errorsThatEventsThrowHarmNothing() throws Exception {
    Logger log = Logger.getLogger("io.isotone");
    log.setLevel(Level.OFF); // it warns
    Events events = new Events() {
      @Override
      public void leader(String addr) {
        throw new AssertionError("by the test");
      }

      @Override
      public void answered(String addr, int calls, long count, Duration took) {
        throw new AssertionError("by the test");
      }
    };
    try (FakeNode node = new FakeNode();
        IsotoneClient client = IsotoneClient.open(Options.of(node.addr()).events(events))) {
      Timestamp first = client.timestampAsync().get(20, TimeUnit.SECONDS);
      assertTrue(first.isBefore(client.timestamp()));
    }
  }

  @Test
  void nodeThatRequiresTlsForCredentials() throws Exception {
    try (FakeNode node = new FakeNode()) {
      node.instead.put("AUTH", "-ERR this port requires TLS\r\n");
      Options options = Options.of(node.addr()).credentials(() -> new Credentials("app", "x"));
      IsotoneException e = assertThrows(IsotoneException.class, () -> IsotoneClient.open(options));
      assertEquals(Code.UNAUTHORIZED, e.code());
      assertTrue(e.getMessage().contains("may require TLS"), e.getMessage());
    }
  }

  @Test
  void credentialsThatCannotBeHadAreNamed() throws Exception {
    try (FakeNode node = new FakeNode()) {
      for (Throwable fault : List.of(new NoClassDefFoundError("vault"), new IllegalStateException("vault"))) {
        Options options = Options.of(node.addr()).timeout(Duration.ofMillis(300)).credentials(() -> {
          throw ClientTest.<RuntimeException>sneak(fault);
        });
        IsotoneException e = assertThrows(IsotoneException.class, () -> IsotoneClient.open(options));
        assertEquals(Code.DEADLINE_EXCEEDED, e.code());
        assertTrue(e.getMessage().contains("the source of credentials has thrown " + fault), e.getMessage());
      }
    }
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E sneak(Throwable fault) throws E {
    throw (E) fault;
  }

  @Test
  void silentNodeIsNamed() throws Exception {
    try (FakeNode node = new FakeNode()) {
      node.instead.putAll(Map.of("INFO", "", "CLUSTER", "", "PING", ""));
      Options options = Options.of(node.addr()).timeout(Duration.ofMillis(200));
      IsotoneException e = assertThrows(IsotoneException.class, () -> IsotoneClient.open(options));
      assertTrue(e.getMessage().endsWith("; " + node.addr() + ": it has not answered yet"), e.getMessage());
    }
  }

  @Test
  void generatorChecksWhatItIsAsked() throws Exception {
    try (FakeNode node = new FakeNode(); IsotoneClient client = IsotoneClient.connect(node.addr())) {
      Generator generator = client.generator(new Generator.Options());
      for (int wrong : new int[] {-1, 1 << 30}) {
        assertEquals(Code.INVALID_ARGUMENT,
            assertThrows(IsotoneException.class, () -> generator.tryNext(wrong)).code());
        assertEquals(Code.INVALID_ARGUMENT,
            assertThrows(IsotoneException.class, () -> generator.next(wrong, Duration.ZERO)).code());
      }
      assertEquals(1, generator.next(1, Duration.ofSeconds(Long.MAX_VALUE)).length);
      assertThrows(IsotoneException.class, () -> new Generator.Options().worker(-5));
      generator.close();
      for (IsotoneException e : List.of(assertThrows(IsotoneException.class, generator::next),
          assertThrows(IsotoneException.class, () -> generator.tryNext(1)))) {
        assertEquals("closed: the generator is closed", e.getMessage());
      }
    }
  }

  @Test
  void optionsListAllFaults() {
    Options options = Options.of("nowhere").connections(0).queueMax(-1).cluster("x");
    IsotoneException e = assertThrows(IsotoneException.class, () -> IsotoneClient.open(options));
    assertEquals(Code.INVALID_ARGUMENT, e.code());
    for (String fault : List.of("nowhere", "connections", "queueMax", "cluster")) {
      assertTrue(e.getMessage().contains(fault), e.getMessage());
    }
  }

  @Test
  void secretsAreNotPrinted() {
    assertFalse(new Credentials("app", "tell-nobody").toString().contains("tell-nobody"));
    assertThrows(IsotoneException.class, () -> new Credentials("a b", "x"));
  }

  @Test
  void generatorReleasesWhatItHasNotUsed() throws Exception {
    try (FakeNode node = new FakeNode(); IsotoneClient client = IsotoneClient.connect(node.addr())) {
      long id;
      Generator.Options options = new Generator.Options().clock(() -> 1795317567364L);
      try (Generator generator = client.generator(options)) {
        id = generator.next();
        assertEquals(300, generator.layout().worker(id));
        assertEquals(id + 1, generator.tryNext(2)[0]);
      }
      String lease = node.requests.take();
      assertTrue(lease.matches("WORKER LEASE [0-9a-f]{16} 1795317567364 30000"), lease);
      String session = lease.split(" ")[2];
      String release = node.requests.take();
      while (release.equals(lease)) { // repeated, as the answer was late
        release = node.requests.take();
      }
      assertEquals("WORKER RELEASE " + session + " 300 1795317567364 1795317567365", release);
    }
  }
}
