// Package powerloss turns the system calls of a process into the folders that a disk may have after a loss of power.
//
// Invariant: the content that a successful fsync has covered is in each of these folders. Of everything else, any part may be missing: sectors of a file, its length, and the
// latest names of a folder. It needs no hook in the program: Trace follows a process with ptrace.
package powerloss

// Variables of a process that FollowTest follows: the folder with its files, and the one where it asks what a loss of power leaves of them (Follow).
const (
	DiskIn = "CONTIV_POWERLOSS_DISK"
	AskIn  = "CONTIV_POWERLOSS_ASKS"
)
