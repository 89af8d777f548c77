package io.isotone;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.ByteArrayInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.Reader;
import java.net.ProtocolException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Reads all vectors of the conformance kit. */
final class VectorsTest {
  private static final Path DIR = Path.of("../../conformance/vectors");

  private static List<JsonObject> list(String file, String name) {
    List<JsonObject> list = new ArrayList<>();
    for (JsonElement e : elements(file, name)) {
      list.add(e.getAsJsonObject());
    }
    return list;
  }

  private static List<JsonElement> elements(String file, String name) {
    try (Reader in = Files.newBufferedReader(DIR.resolve(file + ".json"))) {
      List<JsonElement> list = JsonParser.parseReader(in).getAsJsonObject().getAsJsonArray(name).asList();
      assertFalse(list.isEmpty());
      return list;
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  private static String text(JsonObject v, String name) {
    return v.has(name) && !v.get(name).isJsonNull() ? v.get(name).getAsString() : "";
  }

  private static boolean is(JsonObject v, String name) {
    return v.has(name) && v.get(name).getAsBoolean();
  }

  private static void isInvalid(Executable parse, String what) {
    IsotoneException e = assertThrows(IsotoneException.class, parse, what);
    assertEquals(IsotoneException.Code.INVALID_ARGUMENT, e.code());
  }

  @Test
  void timestampsHaveTheirForms() {
    for (JsonObject v : list("timestamps", "forms")) {
      Timestamp t = new Timestamp(Long.parseUnsignedLong(text(v, "time")), Long.parseUnsignedLong(text(v, "index")));
      Timestamp64 u = Timestamp64.parse(text(v, "u64"));
      assertEquals(text(v, "hex"), t.toString());
      assertEquals(t, Timestamp.parse(text(v, "hex")));
      assertEquals(t, Timestamp.of(t.toBytes()));
      assertEquals(u, Timestamp64.from(t), text(v, "hex"));
      assertEquals(text(v, "u64"), u.toString());
      assertEquals(v.get("physical").getAsLong(), u.millis());
      assertEquals(v.get("logical").getAsInt(), u.counter());
    }
    for (JsonElement v : elements("timestamps", "invalid")) {
      isInvalid(() -> Timestamp.parse(v.getAsString()), v.getAsString());
    }
    for (JsonElement v : elements("timestamps", "invalid64")) {
      isInvalid(() -> Timestamp64.parse(v.getAsString()), v.getAsString());
    }
  }

  @Test
  void timestampsOf64BitsHaveTheirPlaces() {
    for (JsonObject v : list("timestamps", "places")) {
      assertEquals(text(v, "hex"), Timestamp64.parse(text(v, "u64")).place().toString(), text(v, "u64"));
    }
  }

  @Test
  void timestampsAreInOrder() {
    List<JsonElement> order = elements("timestamps", "order");
    for (int i = 0; i < order.size(); i++) {
      for (int j = 0; j < order.size(); j++) {
        Timestamp a = Timestamp.parse(order.get(i).getAsString());
        Timestamp b = Timestamp.parse(order.get(j).getAsString());
        assertEquals(Integer.compare(i, j), Integer.signum(a.compareTo(b)), a + " and " + b);
        assertEquals(i < j, a.isBefore(b));
      }
    }
    for (JsonObject v : list("timestamps", "ranges")) {
      Timestamp.Range range = new Timestamp.Range(Timestamp.parse(text(v, "first")), v.get("count").getAsLong());
      assertEquals(text(v, "last"), range.last().toString());
    }
  }

  @Test
  void idsHaveTheirForms() {
    for (JsonObject v : list("ids", "ids")) {
      long id = Snowflake.parse(text(v, "decimal"));
      Layout layout = Layout.parse(text(v, "layout"), v.get("epoch").getAsLong());
      assertEquals(text(v, "base62"), Snowflake.toBase62(id));
      assertEquals(text(v, "hex"), Snowflake.toHex(id));
      assertEquals(id, Snowflake.parseBase62(text(v, "base62")));
      assertEquals(id, Snowflake.parseHex(text(v, "hex")));
      assertEquals(v.get("millis").getAsLong(), layout.millis(id));
      assertEquals(v.get("worker").getAsInt(), layout.worker(id));
      assertEquals(v.get("datacenter").getAsInt(), layout.datacenter(id));
      assertEquals(v.get("in_datacenter").getAsInt(), layout.inDatacenter(id));
      assertEquals(v.get("sequence").getAsLong(), layout.sequence(id));
    }
    for (JsonObject v : list("ids", "invalid")) {
      String form = text(v, "form");
      isInvalid(() -> {
        if (form.equals("hex")) {
          Snowflake.parseHex(text(v, "text"));
        } else if (form.equals("base62")) {
          Snowflake.parseBase62(text(v, "text"));
        } else {
          Snowflake.parse(text(v, "text"));
        }
      }, v.toString());
    }
  }

  @Test
  void layoutsAreChecked() {
    for (JsonObject v : list("ids", "layouts")) {
      Executable parse = () -> Layout.parse(text(v, "layout"), v.get("epoch").getAsLong());
      if (is(v, "valid")) {
        org.junit.jupiter.api.Assertions.assertDoesNotThrow(parse, v.toString());
      } else {
        isInvalid(parse, v.toString());
      }
    }
  }

  @Test
  void refusalsHaveTheirMeaning() throws IOException {
    for (JsonObject v : list("errors", "lines")) {
      IsotoneException e = Resp.refusal(text(v, "line"));
      assertEquals(text(v, "code"), e.code().text(), v.toString());
      assertEquals(text(v, "leader"), e.leader, v.toString());
      assertEquals(v.has("retry_after_ms") ? v.get("retry_after_ms").getAsLong() : 0, e.retryAfter, v.toString());
      boolean passes = List.of("redirect", "retry", "quota").contains(text(v, "class"));
      assertEquals(passes, e.passes(), v.toString());
      assertEquals(text(v, "class").equals("quota"), e.code() == IsotoneException.Code.QUOTA_EXCEEDED);
      assertEquals(text(v, "class").equals("unauthorized"), e.code() == IsotoneException.Code.UNAUTHORIZED);
    }
    for (JsonElement v : elements("errors", "malformed")) {
      assertThrows(ProtocolException.class, () -> Resp.refusal(v.getAsString()), v.getAsString());
    }
  }

  @Test
  void pausesAreInTheirBounds() {
    for (JsonObject v : list("backoff", "pauses")) {
      long most = switch (text(v, "kind")) {
        case "search" -> Pauses.EAGER;
        case "refused" -> Pauses.REFUSED;
        case "spare" -> Pauses.SPARE;
        default -> Pauses.RETRY;
      };
      int failures = v.get("failures").getAsInt();
      bounds(v, Pauses.after(failures, most, below -> 0), Pauses.after(failures, most, below -> below - 1));
    }
    for (JsonObject v : list("backoff", "quota")) {
      long asked = v.get("retry_after_ms").getAsLong();
      int failures = v.get("failures").getAsInt();
      bounds(v, Pauses.quota(asked, failures, below -> 0), Pauses.quota(asked, failures, below -> below - 1));
    }
  }

  private static void bounds(JsonObject v, long least, long most) {
    assertEquals(v.get("min").getAsLong() * 1000, least, v.toString());
    assertTrue(most < v.get("max").getAsLong() * 1000, v.toString());
    assertTrue(most >= (v.get("max").getAsLong() - 2) * 1000, v.toString());
  }

  @Test
  void generatorsStepAsOthersDo() {
    for (JsonObject v : list("generator", "generators")) {
      Layout layout = Layout.parse(text(v, "layout"), v.get("epoch").getAsLong());
      boolean leased = !v.get("lease").isJsonNull();
      long start = leased ? v.getAsJsonArray("lease").get(0).getAsLong() : layout.epoch();
      long end = leased ? v.getAsJsonArray("lease").get(1).getAsLong() : Long.MAX_VALUE;
      IdSource source =
          new IdSource(layout, v.get("worker").getAsInt(), start, end, v.get("ahead_max_ms").getAsLong());
      for (JsonElement e : v.getAsJsonArray("steps")) {
        step(source, e.getAsJsonObject(), text(v, "about") + e);
      }
    }
  }

  private static void step(IdSource source, JsonObject step, String what) {
    if (step.has("extend")) {
      source.extend(step.get("extend").getAsLong());
    } else if (step.has("stop")) {
      assertEquals(step.get("stop").getAsLong(), source.stop(), what);
    } else {
      long[] ids = new long[step.get("take").getAsInt()];
      IdSource.Refusal refusal = source.take(step.get("now").getAsLong(), ids);
      assertEquals(text(step, "refused"), refusal == null ? "" : refusal.name().toLowerCase(Locale.ROOT), what);
      if (refusal == null) {
        assertEquals(text(step, "first"), Long.toString(ids[0]), what);
        assertEquals(text(step, "last"), Long.toString(ids[ids.length - 1]), what);
      }
    }
  }

  private static Kind kind(JsonObject v) {
    String mode = text(v, "mode");
    ReadMode read = mode.isEmpty() ? ReadMode.DEFAULT : ReadMode.valueOf(mode.toUpperCase(Locale.ROOT));
    return text(v, "method").equals("ids") ? Kind.IDS : Kind.of(text(v, "method").endsWith("64"), read);
  }

  private static Resp wire(JsonObject v) {
    return new Resp(new ByteArrayInputStream(text(v, "wire").getBytes(StandardCharsets.ISO_8859_1)));
  }

  @Test
  void requestsHaveTheirBytes() {
    for (JsonObject v : list("resp", "requests")) {
      Timestamp floor = v.has("floor") ? Timestamp.parse(text(v, "floor")) : Timestamp.ZERO;
      byte[] got = Resp.request(kind(v), v.get("count").getAsLong(), floor);
      assertEquals(text(v, "wire"), new String(got, StandardCharsets.ISO_8859_1));
    }
  }

  /** Fails unless reading throws what a vector says. Returns whether it says that there is an answer. */
  private static boolean judge(JsonObject v, Executable read) {
    Class<? extends Throwable> want = is(v, "malformed") ? ProtocolException.class
        : is(v, "incomplete") ? EOFException.class : v.has("error") ? IsotoneException.class : null;
    if (want == null) {
      org.junit.jupiter.api.Assertions.assertDoesNotThrow(read, v.toString());
      return true;
    }
    Throwable got = assertThrows(want, read, v.toString());
    if (v.has("error")) {
      assertEquals(text(v, "error").startsWith("CLUSTERDOWN") ? "no_leader" : "overloaded",
          ((IsotoneException) got).code().text());
    }
    return false;
  }

  @Test
  void answersAreRead() throws IOException {
    for (JsonObject v : list("resp", "answers")) {
      Batch batch = new Batch(kind(v), Timestamp.ZERO);
      batch.count = v.get("count").getAsLong();
      boolean good = judge(v, () -> {
        Resp in = wire(v);
        IsotoneException refusal = batch.read(in);
        if (refusal != null) {
          throw refusal;
        } else if (in.hasMore()) {
          throw new ProtocolException("more than one answer");
        }
      });
      if (good && batch.kind == Kind.IDS) {
        for (int i = 0; i < batch.ids.length; i++) {
          assertEquals(v.getAsJsonArray("ids").get(i).getAsString(), Long.toString(batch.ids[i]));
        }
        assertEquals(v.getAsJsonArray("ids").size(), batch.ids.length);
      } else if (good) {
        boolean is64 = batch.kind.isTs64();
        String first = is64 ? Timestamp64.from(batch.first).toString() : batch.first.toString();
        assertEquals(text(v, "first"), first);
      }
    }
  }

  @Test
  void membersAreRead() throws IOException {
    for (JsonObject v : list("resp", "slots")) {
      if (judge(v, () -> Resp.view(wire(v).value(), text(v, "asked")))) {
        Resp.View view = Resp.view(wire(v).value(), text(v, "asked"));
        assertEquals(text(v, "leader"), view.leader());
        Set<String> members = new java.util.HashSet<>();
        v.getAsJsonArray("members").forEach(m -> members.add(m.getAsString()));
        assertEquals(members, view.members());
      }
    }
  }

  @Test
  void clustersAreRead() throws IOException {
    for (JsonObject v : list("resp", "clusters")) {
      if (judge(v, () -> Resp.cluster(wire(v).value()))) {
        String want = v.get("cluster").isJsonNull() ? null : text(v, "cluster");
        assertEquals(want, Resp.cluster(wire(v).value()), v.toString());
      }
    }
  }
}
