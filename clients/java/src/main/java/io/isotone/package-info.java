/**
 * A client of Isotone, a highly available timestamp oracle and ID service. Begin with
 * {@link io.isotone.IsotoneClient#connect}.
 */
package io.isotone;
