package fleet

import (
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// databases is the default number of databases of Redis.
const databases = 16

// A snapshot is a copy of the data of a miniredis, like an RDB of Redis.
type snapshot struct {
	keys    []savedKey
	savedAt time.Time
}

type savedKey struct {
	database int
	name     string
	ttl      time.Duration // remaining when saved; 0: none
	restore  func(db *miniredis.RedisDB) error
}

func takeSnapshot(m *miniredis.Miniredis) (*snapshot, error) {
	s := &snapshot{savedAt: time.Now()}
	for i := range databases {
		db := m.DB(i)
		for _, name := range db.Keys() {
			restore, err := copyKey(db, name)
			if err != nil {
				return nil, fmt.Errorf("database %d, key %q: %w", i, name, err)
			}
			if restore != nil {
				s.keys = append(s.keys, savedKey{i, name, db.TTL(name), restore})
			}
		}
	}
	return s, nil
}

// copyKey returns a function that restores the key in an empty database, or nil if the key has just expired.
func copyKey(db *miniredis.RedisDB, name string) (func(*miniredis.RedisDB) error, error) {
	switch kind := db.Type(name); kind {
	case "":
		return nil, nil
	case "string":
		value, err := db.Get(name)
		return func(to *miniredis.RedisDB) error { return to.Set(name, value) }, err
	case "hash":
		fields, err := db.HKeys(name)
		var pairs []string
		for _, field := range fields {
			pairs = append(pairs, field, db.HGet(name, field))
		}
		return func(to *miniredis.RedisDB) error { to.HSet(name, pairs...); return nil }, err
	case "list":
		values, err := db.List(name)
		return func(to *miniredis.RedisDB) error { _, err := to.Push(name, values...); return err }, err
	case "set":
		members, err := db.Members(name)
		return func(to *miniredis.RedisDB) error { _, err := to.SetAdd(name, members...); return err }, err
	case "zset":
		members, err := db.SortedSet(name)
		return func(to *miniredis.RedisDB) error {
			for member, score := range members {
				if _, err := to.ZAdd(name, score, member); err != nil {
					return err
				}
			}
			return nil
		}, err
	default:
		return nil, fmt.Errorf("%w: save of a %s on an embedded fleet; use a process fleet", ErrUnsupported, kind)
	}
}

// restore fills an empty m. Keys that have expired since the snapshot are not restored.
func (s *snapshot) restore(m *miniredis.Miniredis) error {
	age := time.Since(s.savedAt)
	for _, key := range s.keys {
		if key.ttl > 0 && key.ttl <= age {
			continue
		}
		db := m.DB(key.database)
		if err := key.restore(db); err != nil {
			return fmt.Errorf("restore of %q: %w", key.name, err)
		}
		if key.ttl > 0 {
			db.SetTTL(key.name, key.ttl-age)
		}
	}
	return nil
}
