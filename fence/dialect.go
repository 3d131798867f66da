package fence

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
)

// A Dialect is the SQL of a kind of database. The zero value is none.
type Dialect uint8

const (
	Postgres Dialect = iota + 1 // PostgreSQL 9.5 or later
	MySQL                       // MySQL 5.7 or later, MariaDB 10.2 or later, with InnoDB. It is tested on MariaDB
	SQLite                      // SQLite 3.24 or later
)

// statements are the SQL of a dialect. %s is the name of the table.
type statements struct {
	create string
	// raise stores a token unless a larger one is stored. In both cases the row is then locked until the transaction
	// ends, also if it is new.
	raise string
	// again: raise has the token twice.
	again bool
	// hex: the resource is given in hexadecimal.
	hex bool
	// counts: the number of affected rows is 0 exactly if a larger token is stored.
	counts bool
	// text: the resource is text, so not every name of a lock can be one.
	text bool
	// highest reads the token that is stored now, not one of an older snapshot.
	highest string
}

var dialects = map[Dialect]statements{
	// "All rows will be locked when the ON CONFLICT DO UPDATE action is taken", also those that WHERE excludes:
	// https://www.postgresql.org/docs/current/sql-insert.html
	//
	// COLLATE "C" is the order of bytes. Another order comes from the C library or ICU, and may change when these are
	// upgraded: then the index does not find a row that is there, and a second one is stored for the same resource.
	// https://wiki.postgresql.org/wiki/Locale_data_changes
	//
	// The name is sent in hexadecimal: PostgreSQL takes text for that of the connection's client_encoding, which may be the
	// database's or the role's. So two holders' connections could have two rows for one name.
	// https://www.postgresql.org/docs/current/multibyte.html
	Postgres: {
		create: `CREATE TABLE IF NOT EXISTS %s (resource text COLLATE "C" PRIMARY KEY, token bigint NOT NULL)`,
		raise: "INSERT INTO %s AS stored (resource, token) VALUES (convert_from(decode($1, 'hex'), 'UTF8'), $2) " +
			"ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE stored.token <= excluded.token",
		hex:     true,
		counts:  true,
		text:    true,
		highest: "SELECT token FROM %s WHERE resource = convert_from(decode($1, 'hex'), 'UTF8')",
	},
	// MySQL counts a row only if it changes, and so cannot tell an equal token from a stale one; with CLIENT_FOUND_ROWS
	// it always counts it: https://dev.mysql.com/doc/refman/8.0/en/insert-on-duplicate.html. So the token is read back.
	// Without FOR UPDATE that would be read from the transaction's snapshot.
	//
	// VARBINARY, because most collations take "Invoice" and "invoice " for "invoice". The name is sent in hexadecimal: MySQL
	// converts text from character_set_client to character_set_connection, also on its way to a VARBINARY. If these two
	// differ, as after SET CHARACTER SET, it would become another name, or several names the same one of question marks.
	MySQL: {
		create:  "CREATE TABLE IF NOT EXISTS %s (resource VARBINARY(1024) NOT NULL PRIMARY KEY, token BIGINT NOT NULL) ENGINE=InnoDB",
		raise:   "INSERT INTO %s (resource, token) VALUES (UNHEX(?), ?) ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)",
		again:   true,
		hex:     true,
		highest: "SELECT token FROM %s WHERE resource = UNHEX(?) FOR UPDATE",
	},
	// The token is read back here too, which costs no round trip: with PRAGMA count_changes, a driver can return the count of
	// the statement before.
	//
	// An INSERT begins with the lock on the database, also if it then changes nothing:
	// https://www.sqlite.org/lang_transaction.html
	SQLite: {
		create: "CREATE TABLE IF NOT EXISTS %s (resource TEXT PRIMARY KEY NOT NULL, token INTEGER NOT NULL) WITHOUT ROWID",
		raise: "INSERT INTO %s AS stored (resource, token) VALUES (?, ?) " +
			"ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE stored.token <= excluded.token",
		highest: "SELECT token FROM %s WHERE resource = ?",
	},
}

// of returns the statements for the table of this name.
func (s statements) of(table string) statements {
	for _, text := range []*string{&s.create, &s.raise, &s.highest} {
		*text = fmt.Sprintf(*text, table)
	}
	return s
}

// raiseTo stores the token unless a larger one is stored, and returns the one that is stored then.
func (s statements) raiseTo(ctx context.Context, tx *sql.Tx, resource string, token int64) (highest int64, err error) {
	if s.hex {
		resource = hex.EncodeToString([]byte(resource))
	}
	args := []any{resource, token}
	if s.again {
		args = append(args, token)
	}
	result, err := tx.ExecContext(ctx, s.raise, args...)
	if err != nil {
		return 0, err
	}
	if s.counts {
		rows, err := result.RowsAffected()
		if err != nil || rows > 0 {
			return token, err
		}
	}
	err = tx.QueryRowContext(ctx, s.highest, resource).Scan(&highest)
	return highest, err
}
