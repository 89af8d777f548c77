package io.isotone;

import io.isotone.IsotoneException.Code;

/**
 * A name and the secret that nodes know it by. It is printed without the secret.
 *
 * @param user 1 to 64 letters, digits, '.', '_' and '-'
 * @param secret 1 to 256 bytes
 */
public record Credentials(String user, String secret) {
  /** Checks the parts. */
  public Credentials {
    if (!user.matches("[A-Za-z0-9._-]{1,64}")) {
      throw IsotoneException.invalid("credentials: want a name of 1 to 64 letters, digits, '.', '_' and '-'");
    }
    int bytes = Resp.utf8(secret).length;
    if (bytes < 1 || bytes > 256) {
      throw new IsotoneException(Code.INVALID_ARGUMENT, "credentials: want a secret of 1 to 256 bytes");
    }
  }

  @Override
  public String toString() {
    return user + " (secret not shown)";
  }
}
