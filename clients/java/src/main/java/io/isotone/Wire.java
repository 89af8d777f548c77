package io.isotone;

import io.isotone.IsotoneException.Code;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.net.UnknownHostException;
import java.nio.channels.SocketChannel;
import java.util.Set;
import java.util.function.Supplier;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** An open connection: TLS, authentication and the check of the cluster are behind it. */
final class Wire {
  /** The alerts by which a node refuses the client's certificate, or its absence. */
  private static final Set<String> CERTIFICATE_ALERTS = Set.of("handshake_failure", "bad_certificate",
      "unsupported_certificate", "certificate_revoked", "certificate_expired", "certificate_unknown", "unknown_ca",
      "access_denied", "certificate_required");

  final String addr;
  final Resp in;
  private final SocketChannel channel;
  private final InputStream raw;
  private final OutputStream out;

  /** How long the latest question took, beginning with the authentication. */
  long took;

  private Wire(Core core, String addr, SocketChannel channel) throws IOException {
    this.addr = addr;
    this.channel = channel;
    String host = addr.substring(0, addr.lastIndexOf(':')).replaceAll("^\\[|\\]$", "");
    InetSocketAddress at = new InetSocketAddress(host, Integer.parseInt(addr.substring(addr.lastIndexOf(':') + 1)));
    if (at.isUnresolved()) {
      throw new UnknownHostException("unknown host " + host);
    }
    channel.connect(at);
    channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
    if (core.options.tls == null) {
      raw = channel.socket().getInputStream();
      out = channel.socket().getOutputStream();
    } else {
      SSLSocket inside = secure(core, host, at.getPort());
      raw = inside.getInputStream();
      out = inside.getOutputStream();
    }
    in = new Resp(raw);
  }

  /**
   * Opens a connection within the dial timeout, and asks a question that is harmless in any cluster together with that
   * for the cluster. Returns once the node has answered that, so the answer to the question is the next one.
   */
  static Wire open(Core core, String addr, String... question) throws IOException {
    SocketChannel channel = SocketChannel.open();
    return within(core, addr, channel, () -> {
      try {
        Wire wire = new Wire(core, addr, channel);
        wire.greet(core, question);
        return wire;
      } catch (IOException | RuntimeException e) {
        channel.close();
        throw e;
      }
    });
  }

  /** Asks a question, unless that is empty because it was sent already, and returns the answer. */
  Object ask(Core core, String... question) throws IOException {
    return within(core, addr, channel, () -> {
      if (question.length > 0) {
        write(Resp.command(question));
      }
      return in.value();
    });
  }

  private interface Talk<T> {
    T talk() throws IOException;
  }

  /** Has a conversation that is ended after the dial timeout. */
  private static <T> T within(Core core, String addr, SocketChannel channel, Talk<T> talk) throws IOException {
    try (Core.Guard guard = core.guard(addr, channel)) {
      try {
        return talk.talk();
      } catch (IOException | RuntimeException e) {
        throw guard.isOver() ? new IOException("no answer within " + core.options.dialTimeout) : readable(e);
      }
    }
  }

  private SSLSocket secure(Core core, String host, int port) throws IOException {
    Options options = core.options;
    SSLSocket inside = (SSLSocket) options.tls.getSocketFactory().createSocket(
        channel.socket(), options.serverName.isEmpty() ? host : options.serverName, port, true);
    SSLParameters parameters = inside.getSSLParameters();
    parameters.setEndpointIdentificationAlgorithm("HTTPS");
    inside.setSSLParameters(parameters);
    inside.startHandshake();
    return inside;
  }

  private void greet(Core core, String... question) throws IOException {
    long begun = core.now();
    Credentials credentials = credentials(core.options.credentials);
    InetAddress node = ((InetSocketAddress) channel.getRemoteAddress()).getAddress();
    if (credentials != null && core.options.tls == null && !node.isLoopbackAddress()) {
      throw new IsotoneException(Code.UNAUTHORIZED, "the secret would cross the network in plaintext: set Options.tls");
    }
    java.io.ByteArrayOutputStream first = new java.io.ByteArrayOutputStream();
    if (credentials != null) {
      first.write(Resp.command("AUTH", credentials.user(), credentials.secret()));
    }
    first.write(Resp.command("INFO", "cluster"));
    first.write(Resp.command(question));
    write(first.toByteArray());
    if (credentials != null) {
      authenticated(credentials.user());
    }
    core.checkCluster(addr, Resp.cluster(in.value()));
    took = core.now() - begun;
  }

  private static Credentials credentials(Supplier<Credentials> source) throws IOException {
    try {
      return source == null ? null : source.get();
    } catch (IsotoneException e) {
      throw e; // credentials that cannot be
    } catch (Throwable e) {
      throw new IOException("the source of credentials has thrown " + e, e);
    }
  }

  /** Reads the answer to AUTH. No error has a part of it: who echoes what was sent to it has the secret in it. */
  private void authenticated(String user) throws IOException {
    Object answer;
    try {
      answer = in.value();
    } catch (IsotoneException e) {
      if (e.code() == Code.INVALID_ARGUMENT) {
        throw new IsotoneException(
            Code.UNAUTHORIZED, addr + " takes no credentials on this connection; it may require TLS");
      }
      throw new IsotoneException(e.code(), addr + " does not accept the credentials of " + user);
    } catch (java.net.ProtocolException e) {
      throw new java.net.ProtocolException("malformed answer to AUTH");
    }
    if (!"OK".equals(answer)) {
      throw new IsotoneException(Code.UNAUTHORIZED, addr + " does not answer AUTH with OK");
    }
  }

  boolean hasInput() throws IOException {
    return raw.available() > 0;
  }

  void write(byte[] bytes) throws IOException {
    out.write(bytes);
  }

  void close() {
    try {
      channel.close();
    } catch (IOException e) {
      // It is closed all the same.
    }
  }

  /** Returns an exception for errors of calls: an IsotoneException if the node refuses the client. */
  private static IOException readable(Exception e) {
    if (e instanceof IsotoneException refusal) {
      throw refusal;
    }
    String alert = String.valueOf(e.getMessage()).replace("Received fatal alert: ", "");
    if (e instanceof SSLException && CERTIFICATE_ALERTS.contains(alert)) {
      throw new IsotoneException(Code.UNAUTHORIZED, "the node wants another client certificate: " + alert);
    }
    return e instanceof IOException io ? io : new IOException(e);
  }
}
