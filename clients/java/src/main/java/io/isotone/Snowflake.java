package io.isotone;

/**
 * The texts of IDs, which are positive {@code long}s. Each ID has one text in each form, so texts may be compared.
 * Parsers throw {@link IsotoneException} with {@code INVALID_ARGUMENT} for all other texts.
 */
public final class Snowflake {
  private static final String DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

  private Snowflake() {}

  /** Reads a decimal number of 1 to 19 digits, without sign and leading zeros. */
  public static long parse(String text) {
    return parse(text, 10);
  }

  /** Reads what {@link #toBase62} returns. */
  public static long parseBase62(String text) {
    return parse(text, DIGITS.length());
  }

  /** Reads what {@link #toHex} returns. */
  public static long parseHex(String text) {
    if (!text.matches("[0-7][0-9a-f]{15}")) {
      throw invalid(text);
    }
    return Long.parseLong(text, 16);
  }

  /** Returns 1 to 11 of 0-9, A-Z and a-z. */
  public static String toBase62(long id) {
    StringBuilder text = new StringBuilder();
    for (long rest = id; rest > 0 || text.isEmpty(); rest /= DIGITS.length()) {
      text.append(DIGITS.charAt((int) (rest % DIGITS.length())));
    }
    return text.reverse().toString();
  }

  /** Returns 16 hexadecimal digits in lower case, which sort as IDs do. */
  public static String toHex(long id) {
    return java.util.HexFormat.of().toHexDigits(id);
  }

  private static long parse(String text, int base) {
    if (text.isEmpty() || text.length() > 1 && text.charAt(0) == '0') {
      throw invalid(text);
    }
    long value = 0;
    for (char c : text.toCharArray()) {
      int digit = DIGITS.indexOf(c);
      if (digit < 0 || digit >= base || value > (Long.MAX_VALUE - digit) / base) {
        throw invalid(text);
      }
      value = value * base + digit;
    }
    return value;
  }

  private static IsotoneException invalid(String text) {
    return IsotoneException.invalid("ID \"" + text + "\": want a number of 63 bits");
  }
}
