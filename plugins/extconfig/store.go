package extconfig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/keyed"
)

// Store is a Bolt file with what each client wants: a bucket per client, in it key → message as protobuf. It is safe for
// concurrent use.
type Store struct{ db *bbolt.DB }

// clients is the bucket that holds the clients' buckets, whose names are the clients' behind a byte (none may be empty).
const (
	clients      = "clients/v1"
	clientPrefix = '/'
)

// lockPatience is how long OpenStore waits for another process to let go of the file.
const lockPatience = 5 * time.Second

// OpenStore opens the file, or makes it and the folder it is in. One process has it at a time.
func OpenStore(path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockPatience})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("store %s: another process has it open: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists([]byte(clients))
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", path, err), db.Close())
	}
	return &Store{db: db}, nil
}

// Close waits for what is being written.
func (s *Store) Close() error { return s.db.Close() }

// Load is everything the store has, by client. An entry that cannot be read is told of in unread, one error each, and stays in
// the file: a later version may know it.
func (s *Store) Load() (wants map[string]keyed.Values, unread []error, err error) {
	wants = map[string]keyed.Values{}
	err = s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(clients)).ForEachBucket(func(name []byte) error {
			client := string(bytes.TrimPrefix(name, []byte{clientPrefix}))
			values := keyed.Values{}
			wants[client] = values
			return tx.Bucket([]byte(clients)).Bucket(name).ForEach(func(k, v []byte) error {
				msg, err := decode(string(k), v)
				if err != nil {
					unread = append(unread, fmt.Errorf("client %q: %w", client, err))
					return nil
				}
				values[string(k)] = msg
				return nil
			})
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	return wants, unread, nil
}

func decode(key string, value []byte) (proto.Message, error) {
	model, _, found := keyed.Lookup(key)
	if !found {
		return nil, fmt.Errorf("%q: %w", key, keyed.ErrNoModel)
	}
	msg := model.New()
	if err := proto.Unmarshal(value, msg); err != nil {
		return nil, fmt.Errorf("%q: %w", key, err)
	}
	return msg, keyed.Check(key, msg)
}

// Save writes a change of what a client wants, all of it or nothing: nil messages delete. It returns when the disk has it.
func (s *Store) Save(client string, changes map[string]proto.Message) error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		name := append([]byte{clientPrefix}, client...)
		bucket, err := tx.Bucket([]byte(clients)).CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		for _, key := range keyed.Values(changes).Keys() {
			if err := save(bucket, key, changes[key]); err != nil {
				return fmt.Errorf("%q: %w", key, err)
			}
		}
		if first, _ := bucket.Cursor().First(); first == nil {
			return tx.Bucket([]byte(clients)).DeleteBucket(name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store: client %q: %w", client, err)
	}
	return nil
}

func save(bucket *bbolt.Bucket, key string, msg proto.Message) error {
	if msg == nil {
		return bucket.Delete([]byte(key))
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
	if err != nil {
		return err
	}
	return bucket.Put([]byte(key), value)
}
