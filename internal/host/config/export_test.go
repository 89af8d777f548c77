package config

// SetHostname replaces the host name of this machine, and returns what puts it back.
func SetHostname(f func() (string, error)) (restore func()) {
	was := hostname
	hostname = f
	return func() { hostname = was }
}
