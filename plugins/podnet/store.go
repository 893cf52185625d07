package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/boltstore"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// attachments is the bucket of the file: attachment → Attachment as JSON, in the group of its container.
const attachments = "attachments/v1"

// store keeps the attachments in a file.
type store struct{ file *boltstore.File }

func openStore(path string) (*store, []*Attachment, error) {
	file, err := boltstore.Open(path, boltstore.Schema{Buckets: []string{attachments}})
	if err != nil {
		return nil, nil, err
	}
	var all []*Attachment
	err = file.Each(attachments, func(_, key string, value []byte) error {
		a := &Attachment{}
		if err := json.Unmarshal(value, a); err != nil {
			return fmt.Errorf("%s: attachment %q: %w", path, key, err)
		}
		all = append(all, a)
		return nil
	})
	if err == nil { // a file that cannot be written keeps nothing
		err = file.Update(func(*boltstore.Tx) error { return nil })
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return &store{file}, all, nil
}

func (s *store) put(a *Attachment) error {
	value, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return s.file.Update(func(tx *boltstore.Tx) error { return tx.Put(attachments, a.ContainerID, a.IfName, value) })
}

func (s *store) remove(a protocol.Attachment) error {
	return s.file.Update(func(tx *boltstore.Tx) error { return tx.Delete(attachments, a.ContainerID, a.IfName) })
}

func (s *store) closeFile() error { return s.file.Close() }

// namespaceGone returns why a file is no network namespace; nil: it is one.
func namespaceGone(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if st.Type != unix.NSFS_MAGIC && st.Type != unix.PROC_SUPER_MAGIC {
		return &os.PathError{Op: "open network namespace", Path: path, Err: fs.ErrNotExist}
	}
	return nil
}
