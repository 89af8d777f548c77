package isotone

// Bounds of what a client proves with who it is, in bytes. Nodes accept nothing longer, and clients
// send nothing longer, which keeps a wrong file from being sent as a secret.
const (
	// UserNameMax bounds the name of a user.
	UserNameMax = 64
	// SecretMax bounds a secret. One that isotone makes has 32 bytes.
	SecretMax = 256
)
