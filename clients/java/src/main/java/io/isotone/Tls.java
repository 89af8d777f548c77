package io.isotone;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Makes contexts for {@link Options#tls} of texts in PEM. */
public final class Tls {
  private Tls() {}

  /** Trusts certificates of these authorities only. */
  public static SSLContext trusting(String authorities) {
    return context(authorities, null, null);
  }

  /**
   * Trusts certificates of these authorities only, and shows nodes a certificate, perhaps followed by those of its
   * authorities. Its key is in PKCS #8.
   */
  public static SSLContext context(String authorities, String certificate, String key) {
    try {
      KeyStore trusted = store();
      for (Certificate authority : certificates(authorities)) {
        trusted.setCertificateEntry("authority-" + trusted.size(), authority);
      }
      TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(trusted);
      KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      KeyStore own = store();
      if (certificate != null) {
        own.setKeyEntry("client", key(key), new char[0], certificates(certificate).toArray(Certificate[]::new));
      }
      keys.init(own, new char[0]);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
      return context;
    } catch (GeneralSecurityException | IOException | IllegalArgumentException e) {
      throw IsotoneException.invalid("TLS: " + e.getMessage());
    }
  }

  private static KeyStore store() throws GeneralSecurityException, IOException {
    KeyStore store = KeyStore.getInstance("PKCS12");
    store.load(null, null);
    return store;
  }

  private static Collection<? extends Certificate> certificates(String pem) throws GeneralSecurityException {
    var list = CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(Resp.utf8(pem)));
    if (list.isEmpty()) {
      throw new GeneralSecurityException("no certificate in PEM");
    }
    return list;
  }

  private static PrivateKey key(String pem) throws GeneralSecurityException {
    byte[] bytes = Base64.getMimeDecoder().decode(pem.replaceAll("-----[A-Z ]+-----", ""));
    for (String algorithm : List.of("EC", "RSA", "Ed25519")) {
      try {
        return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(bytes));
      } catch (InvalidKeySpecException e) {
        // Of another algorithm.
      }
    }
    throw new GeneralSecurityException("no key of EC, RSA or Ed25519 in PKCS #8");
  }
}
