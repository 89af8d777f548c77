package io.isotone;

/**
 * The texts of IDs, which are positive {@code long}s. Each ID has one text in each form, so texts may be compared.
 * Parsers throw {@link IsotoneException} with {@code INVALID_ARGUMENT} for all other texts.
 */
public final class Snowflake {
  private static final String DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

  private Snowflake() {}

  /**
   * Reads a decimal number without sign and leading zeros.
   *
   * @param text 1 to 19 digits
   * @return the ID
   */
  public static long parse(String text) {
    return parse(text, 10);
  }

  /**
   * Reads what {@link #toBase62} returns.
   *
   * @param text 1 to 11 of 0-9, A-Z and a-z
   * @return the ID
   */
  public static long parseBase62(String text) {
    return parse(text, DIGITS.length());
  }

  /**
   * Reads what {@link #toHex} returns.
   *
   * @param text 16 digits in lower case
   * @return the ID
   */
  public static long parseHex(String text) {
    if (!text.matches("[0-7][0-9a-f]{15}")) {
      throw invalid(text);
    }
    return Long.parseLong(text, 16);
  }

  /**
   * Returns the shortest text.
   *
   * @param id the ID
   * @return 1 to 11 of 0-9, A-Z and a-z, in the order of their bytes
   */
  public static String toBase62(long id) {
    StringBuilder text = new StringBuilder();
    for (long rest = id; rest > 0 || text.isEmpty(); rest /= DIGITS.length()) {
      text.append(DIGITS.charAt((int) (rest % DIGITS.length())));
    }
    return text.reverse().toString();
  }

  /**
   * Returns a text that sorts as IDs do.
   *
   * @param id the ID
   * @return 16 hexadecimal digits
   */
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
