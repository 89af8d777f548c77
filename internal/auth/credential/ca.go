package credential

import (
	"crypto/x509"
	"fmt"
	"os"
)

// ReadCA reads the certificates in the file of a setting. Without a file it returns nil: those of
// the system.
func ReadCA(setting, file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: %s has no certificate in it", setting, file)
	}
	return pool, nil
}
