package fence

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// A Table is a table of a database that has the largest fencing token of each resource. [Table.Check] compares and
// stores a token in the transaction that changes the resource. A Table is a value that holds nothing: copy it freely.
//
// The database has one server that takes writes. Where several do (Galera, Group Replication with several primaries),
// send all transactions to the same one: the others do not see its locks.
type Table struct {
	Dialect Dialect
	// Name is the name of the table: letters, digits and _, not quoted, with a schema and a dot before it if you like.
	// Default: redlock_fence. All programs must reach the same table. Without a schema, PostgreSQL looks in the search_path
	// of each user, and finds another one, without an error, where the users have schemas of their own.
	Name string
}

// Create creates the table if it does not exist. For a migration, DDL has the statement.
func (t Table) Create(ctx context.Context, db *sql.DB) error {
	ddl, err := t.DDL()
	if err != nil {
		return err
	}
	if _, err = db.ExecContext(ctx, ddl); err != nil && ctx.Err() == nil {
		// If several processes create it at once, PostgreSQL refuses all but one, in spite of IF NOT EXISTS.
		// https://postgresql.org/message-id/CAKU4AWpGFMgp3zF-8TUkpydPZ5kJcY-yWcdN92mwRnSbJW2zhQ%40mail.gmail.com
		_, err = db.ExecContext(ctx, ddl)
	}
	if err != nil {
		return fmt.Errorf("fence: create the table: %w", err)
	}
	return nil
}

// DDL returns the statement that creates the table.
func (t Table) DDL() (string, error) {
	s, err := t.statements()
	return s.create, err
}

// Check stores the token for the resource, unless a larger one is stored. Then the error is a [*StaleError]. After it
// has returned nil, no other transaction passes Check for the resource until this one ends: it waits, or the database
// ends it. So what an older holder does is either complete before Check returns, or refused.
//
// Call it first in the transaction, for each resource that you use, before anything is read, and before any savepoint: to go
// back to one from before Check undoes Check, also that others wait. A transaction that is rolled back stores no token.
//
// After any error in the transaction, of Check or of a later statement, roll it back and go no further in it. With a
// deadlock, MySQL has ended it, and SQLite with a statement whose context ended. What you do then in the same [sql.Tx] is
// committed at once, statement by statement, and nothing keeps others out: not even a Check that returns nil. In MySQL, Commit
// returns nil too; and CREATE, ALTER, TRUNCATE and other statements that commit implicitly end the transaction in the same
// way, without an error.
//
// A holder that is paused within its transaction keeps newer ones waiting. Let the database end such a transaction: with
// idle_in_transaction_session_timeout in PostgreSQL, wait_timeout in MySQL. SQLite has nothing like that.
//
// Errors of the database come as they are, wrapped: a deadlock, a transaction that cannot be serialized, a database
// that is busy. As with any transaction, run it again from its beginning; a stale token is then [ErrStale]. A token
// that is 0 or not below 2^53, a resource of more than 1024 bytes, and a wrong Table are [ErrInvalid]. So is, on
// PostgreSQL, a resource that is not UTF-8 or has a NUL byte. A name that the encoding of a PostgreSQL database lacks is
// an error of that database. In a SQLite database with PRAGMA encoding = 'UTF-16', all bytes that are not UTF-8 are the
// same one: two such names share a token, so a holder can be refused that is not stale.
//
// Any isolation level will do:
//
//   - PostgreSQL: from REPEATABLE READ on, a transaction that has waited for another cannot be serialized (SQLSTATE
//     40001): run it again.
//   - MySQL: in a transaction that reads before Check, REPEATABLE READ shows the data of that moment, also after Check.
//     No error tells that they are old, but on MariaDB from 11.6.2 on (1020): run it again.
//   - SQLite: there is one writer at a time in the whole database. In WAL mode, a transaction that has read before Check
//     may be refused as busy at once (SQLITE_BUSY_SNAPSHOT): run it again.
//
// Rows are not deleted. A row takes some 100 bytes beside the name of the resource.
func (t Table) Check(ctx context.Context, tx *sql.Tx, resource string, token uint64) error {
	s, err := t.statements()
	if err != nil {
		return err
	}
	if err := checkToken(token); err != nil {
		return err
	}
	// Other databases than SQLite have a limit. MySQL truncates what is longer, if it is not in strict mode.
	if len(resource) > maxResourceBytes {
		return fmt.Errorf("%w: the resource %.20q… has %d bytes, more than the %d allowed", ErrInvalid, resource, len(resource), maxResourceBytes)
	}
	if s.text && (!utf8.ValidString(resource) || strings.Contains(resource, "\x00")) {
		return fmt.Errorf("%w: the resource %q: PostgreSQL stores text of UTF-8 without NUL; encode the name, as in hexadecimal", ErrInvalid, resource)
	}
	highest, err := s.raiseTo(ctx, tx, resource, int64(token))
	switch {
	case err != nil:
		return fmt.Errorf("fence: check the token of %q: %w", resource, err)
	case uint64(highest) > token:
		return &StaleError{Resource: resource, Token: token, Highest: uint64(highest)}
	case uint64(highest) < token: // a trigger or a rule, say
		return fmt.Errorf("fence: check the token of %q: the database has not stored %d, it has %d", resource, token, highest)
	}
	return nil
}

// maxResourceBytes is the length of the longest name of a lock.
const maxResourceBytes = 1024

// tableName excludes what would have to be quoted. 63 bytes are the shortest limit of all dialects.
var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// statements returns the SQL for this table.
func (t Table) statements() (statements, error) {
	s, ok := dialects[t.Dialect]
	if !ok {
		return s, fmt.Errorf("%w: Table.Dialect is not set: it is fence.Postgres, fence.MySQL or fence.SQLite", ErrInvalid)
	}
	name := t.Name
	if name == "" {
		name = "redlock_fence"
	}
	if !tableName.MatchString(name) {
		return statements{}, fmt.Errorf("%w: Table.Name is %q: use letters, digits and _", ErrInvalid, name)
	}
	return s.of(name), nil
}
