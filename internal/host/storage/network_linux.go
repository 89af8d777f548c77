package storage

import "golang.org/x/sys/unix"

// networkFileSystems are the file systems (statfs(2)) that several machines may have mounted.
var networkFileSystems = map[uint32]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.CIFS_SUPER_MAGIC: "SMB",
	unix.CEPH_SUPER_MAGIC: "CephFS",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.V9FS_MAGIC:       "9P",
	0x0bd00bd0:            "Lustre",
	0x7461636f:            "OCFS2",
	0x01161970:            "GFS2",
}

// NetworkFileSystem returns the name of the file system that dir is on if other machines may have it
// mounted as well; otherwise, or if it is unknown, "". Whether a lock of the directory is seen there,
// and for how long, is up to that file system.
func NetworkFileSystem(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return ""
	}
	return networkFileSystems[uint32(s.Type)]
}
