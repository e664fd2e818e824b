package dev.tenure.client.internal;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Makes the TLS context of a client from PEM files: the authority to trust, and the client's own certificate. */
final class Tls {
  private static final Pattern PRIVATE_KEY =
      Pattern.compile("-----BEGIN PRIVATE KEY-----([^-]+)-----END PRIVATE KEY-----");

  private Tls() {}

  /** Only members whose certificates this authority signed are trusted. */
  static SSLContext context(Path ca, Path certificate, Path key) throws IOException, GeneralSecurityException {
    KeyStore trusted = empty();
    int number = 0;
    for (Certificate authority : certificates(ca)) {
      trusted.setCertificateEntry("ca-" + number++, authority);
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(trusted);
    KeyManager[] own = null;
    if (certificate != null) {
      KeyStore identity = empty();
      Certificate[] chain = certificates(certificate).toArray(new Certificate[0]);
      identity.setKeyEntry("client", privateKey(key), new char[0], chain);
      KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      keys.init(identity, new char[0]);
      own = keys.getKeyManagers();
    }
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(own, trust.getTrustManagers(), null);
    return context;
  }

  private static KeyStore empty() throws IOException, GeneralSecurityException {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    return store;
  }

  private static List<Certificate> certificates(Path path) throws IOException, GeneralSecurityException {
    try (InputStream in = Files.newInputStream(path)) {
      Collection<? extends Certificate> read = CertificateFactory.getInstance("X.509").generateCertificates(in);
      if (read.isEmpty()) {
        throw new IOException("there is no certificate in " + path);
      }
      return new ArrayList<>(read);
    }
  }

  private static PrivateKey privateKey(Path path) throws IOException, GeneralSecurityException {
    Matcher found = PRIVATE_KEY.matcher(Files.readString(path));
    if (!found.find()) {
      throw new IOException("there is no PKCS#8 key (BEGIN PRIVATE KEY) in " + path);
    }
    PKCS8EncodedKeySpec spec = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(found.group(1)));
    for (String algorithm : List.of("EC", "Ed25519", "RSA")) {
      try {
        return KeyFactory.getInstance(algorithm).generatePrivate(spec);
      } catch (InvalidKeySpecException other) {
        continue;
      }
    }
    throw new IOException("the key in " + path + " is neither EC nor Ed25519 nor RSA");
  }
}
