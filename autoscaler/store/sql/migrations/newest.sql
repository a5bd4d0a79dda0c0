CREATE TABLE access_tokens (
	hash TEXT NOT NULL,
	person TEXT NOT NULL,
	name TEXT NOT NULL,
	created_seconds DOUBLE NOT NULL,
	created_by TEXT NOT NULL,
	expires_seconds DOUBLE,
	role VARCHAR(20),
	is_service BOOLEAN NOT NULL,
	used_seconds DOUBLE,
	revoked_seconds DOUBLE,
	CONSTRAINT pk_access_tokens PRIMARY KEY (hash)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0021');
CREATE TABLE audit (
	number INTEGER NOT NULL,
	at_seconds DOUBLE NOT NULL,
	person TEXT NOT NULL,
	token TEXT NOT NULL,
	role TEXT NOT NULL,
	action TEXT NOT NULL,
	subject TEXT NOT NULL,
	"before" TEXT NOT NULL,
	"after" TEXT NOT NULL,
	CONSTRAINT pk_audit PRIMARY KEY (number)
);
CREATE TABLE budgets (
	kind VARCHAR(20) NOT NULL,
	name TEXT NOT NULL,
	month_usd TEXT,
	total_usd TEXT,
	hourly_usd TEXT,
	zone TEXT NOT NULL,
	CONSTRAINT pk_budgets PRIMARY KEY (kind, name)
);
CREATE TABLE decisions (
	id INTEGER NOT NULL,
	"plan" INTEGER NOT NULL,
	job TEXT NOT NULL,
	decision TEXT NOT NULL,
	CONSTRAINT pk_decisions PRIMARY KEY (id),
	CONSTRAINT fk_decisions_plan FOREIGN KEY("plan") REFERENCES plans (id)
);
CREATE TABLE deliveries (
	id INTEGER NOT NULL,
	notice INTEGER NOT NULL,
	target TEXT NOT NULL,
	state VARCHAR(20) NOT NULL,
	attempts INTEGER NOT NULL,
	next_seconds DOUBLE NOT NULL,
	error TEXT,
	done_seconds DOUBLE,
	CONSTRAINT pk_deliveries PRIMARY KEY (id),
	CONSTRAINT fk_deliveries_notice_notices FOREIGN KEY(notice) REFERENCES notices (id)
);
CREATE TABLE durations (
	job TEXT NOT NULL,
	offer TEXT NOT NULL,
	what TEXT NOT NULL,
	mean_seconds DOUBLE NOT NULL,
	count INTEGER NOT NULL,
	CONSTRAINT pk_durations PRIMARY KEY (job, offer, what),
	CONSTRAINT fk_durations_job FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE events (
	id INTEGER NOT NULL,
	at_seconds DOUBLE NOT NULL,
	job TEXT,
	kind TEXT NOT NULL,
	text TEXT NOT NULL,
	CONSTRAINT pk_events PRIMARY KEY (id)
);
CREATE TABLE failures (
	id INTEGER NOT NULL,
	job TEXT NOT NULL,
	instance TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	at_seconds DOUBLE NOT NULL,
	failure TEXT NOT NULL,
	CONSTRAINT pk_failures PRIMARY KEY (id),
	CONSTRAINT fk_failures_job FOREIGN KEY(job) REFERENCES jobs (id),
	CONSTRAINT uq_failures_job_instance_attempt UNIQUE (job, instance, attempt)
);
CREATE TABLE incarnations (
	job TEXT NOT NULL,
	number INTEGER NOT NULL,
	instance TEXT NOT NULL,
	started_seconds DOUBLE NOT NULL,
	CONSTRAINT pk_incarnations PRIMARY KEY (job, number),
	CONSTRAINT fk_incarnations_job FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE instances (
	id TEXT NOT NULL,
	job TEXT NOT NULL,
	slot INTEGER NOT NULL,
	generation INTEGER NOT NULL,
	offer TEXT NOT NULL,
	devices_used INTEGER NOT NULL,
	usd_per_hour TEXT NOT NULL,
	minimum_billed_seconds INTEGER NOT NULL,
	desired VARCHAR(20) NOT NULL,
	phase VARCHAR(20) NOT NULL,
	requested_seconds DOUBLE NOT NULL,
	cloud_id TEXT,
	launched_seconds DOUBLE,
	joined_seconds DOUBLE,
	training_seconds DOUBLE,
	draining_seconds DOUBLE,
	ended_seconds DOUBLE,
	seen_seconds DOUBLE,
	reclaim_seconds DOUBLE,
	facts TEXT NOT NULL,
	report_started_seconds DOUBLE,
	report_step INTEGER, extras_usd_per_hour TEXT DEFAULT '0' NOT NULL, transfer TEXT DEFAULT '{}' NOT NULL,
	CONSTRAINT pk_instances PRIMARY KEY (id),
	CONSTRAINT fk_instances_job FOREIGN KEY(job) REFERENCES jobs (id),
	CONSTRAINT uq_instances_job_slot_generation UNIQUE (job, slot, generation)
);
CREATE TABLE intents (
	id INTEGER NOT NULL,
	kind VARCHAR(20) NOT NULL,
	instance TEXT NOT NULL,
	token TEXT NOT NULL,
	state VARCHAR(20) NOT NULL,
	attempts INTEGER NOT NULL,
	not_before_seconds DOUBLE NOT NULL,
	error TEXT, sent_seconds DOUBLE,
	CONSTRAINT pk_intents PRIMARY KEY (id),
	CONSTRAINT fk_intents_instance FOREIGN KEY(instance) REFERENCES instances (id),
	CONSTRAINT uq_intents_instance_kind UNIQUE (instance, kind)
);
CREATE TABLE jobs (
	number INTEGER NOT NULL,
	id TEXT NOT NULL,
	name TEXT NOT NULL,
	spec TEXT NOT NULL,
	phase VARCHAR(20) NOT NULL,
	submitted_seconds DOUBLE NOT NULL,
	started_seconds DOUBLE,
	ended_seconds DOUBLE,
	attempt INTEGER NOT NULL,
	retry_seconds DOUBLE,
	cause TEXT,
	last_lines TEXT NOT NULL,
	lighthouse TEXT,
	report TEXT,
	reported_seconds DOUBLE,
	report_attempt INTEGER,
	report_started_seconds DOUBLE, observations_revision INTEGER DEFAULT '0' NOT NULL, stop_reason VARCHAR(20), person TEXT DEFAULT 'owner' NOT NULL, team TEXT, study TEXT, sampled_seconds DOUBLE, sample_spacing_seconds DOUBLE DEFAULT '1.0' NOT NULL, sample_count INTEGER DEFAULT '0' NOT NULL, checkpoint_directory TEXT,
	CONSTRAINT pk_jobs PRIMARY KEY (number),
	CONSTRAINT uq_jobs_id UNIQUE (id)
);
CREATE TABLE join_tokens (
	hash TEXT NOT NULL,
	instance TEXT NOT NULL,
	expires_seconds DOUBLE NOT NULL,
	burned_seconds DOUBLE, key_hash TEXT,
	CONSTRAINT pk_join_tokens PRIMARY KEY (hash),
	CONSTRAINT fk_join_tokens_instance FOREIGN KEY(instance) REFERENCES instances (id)
);
CREATE TABLE kept_answers (
	key_hash TEXT NOT NULL,
	request_hash TEXT NOT NULL,
	status INTEGER NOT NULL,
	body TEXT,
	at_seconds DOUBLE NOT NULL,
	CONSTRAINT pk_kept_answers PRIMARY KEY (key_hash)
);
CREATE TABLE leadership (
	id INTEGER NOT NULL,
	epoch INTEGER NOT NULL,
	holder TEXT NOT NULL,
	address TEXT NOT NULL,
	expires_seconds DOUBLE NOT NULL,
	CONSTRAINT pk_leadership PRIMARY KEY (id)
);
CREATE TABLE leases (
	study TEXT NOT NULL,
	holder TEXT NOT NULL,
	until_seconds DOUBLE NOT NULL,
	CONSTRAINT pk_leases PRIMARY KEY (study)
);
CREATE TABLE ledger (
	id INTEGER NOT NULL,
	kind VARCHAR(20) NOT NULL,
	instance TEXT NOT NULL,
	job TEXT NOT NULL,
	offer TEXT NOT NULL,
	usd_per_hour TEXT NOT NULL,
	at_seconds DOUBLE NOT NULL,
	minimum_billed_seconds INTEGER NOT NULL, extras_usd_per_hour TEXT DEFAULT '0' NOT NULL, usd TEXT DEFAULT '0' NOT NULL, sent_bytes INTEGER DEFAULT '0' NOT NULL, fetched_bytes INTEGER DEFAULT '0' NOT NULL,
	CONSTRAINT pk_ledger PRIMARY KEY (id),
	CONSTRAINT fk_ledger_instance FOREIGN KEY(instance) REFERENCES instances (id),
	CONSTRAINT fk_ledger_job FOREIGN KEY(job) REFERENCES jobs (id),
	CONSTRAINT uq_ledger_instance_kind_at_seconds UNIQUE (instance, kind, at_seconds)
);
CREATE TABLE lost_work (
	id INTEGER NOT NULL,
	job TEXT NOT NULL,
	until_seconds DOUBLE NOT NULL,
	seconds DOUBLE NOT NULL,
	steps INTEGER NOT NULL,
	CONSTRAINT pk_lost_work PRIMARY KEY (id),
	CONSTRAINT fk_lost_work_job FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE models (
	job TEXT NOT NULL,
	models TEXT NOT NULL,
	CONSTRAINT pk_models PRIMARY KEY (job),
	CONSTRAINT fk_models_job FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE node_tokens (
	hash TEXT NOT NULL,
	instance TEXT NOT NULL,
	issued_seconds DOUBLE NOT NULL,
	expires_seconds DOUBLE NOT NULL,
	CONSTRAINT pk_node_tokens PRIMARY KEY (hash),
	CONSTRAINT fk_node_tokens_instance FOREIGN KEY(instance) REFERENCES instances (id)
);
CREATE TABLE noise (
	id INTEGER NOT NULL,
	job TEXT NOT NULL,
	progress_examples DOUBLE NOT NULL,
	noise TEXT NOT NULL,
	CONSTRAINT pk_noise PRIMARY KEY (id),
	CONSTRAINT fk_noise_job FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE notices (
	id INTEGER NOT NULL,
	kind VARCHAR(20) NOT NULL,
	subject TEXT NOT NULL,
	episode INTEGER NOT NULL,
	ended_seconds DOUBLE,
	notice TEXT NOT NULL,
	CONSTRAINT pk_notices PRIMARY KEY (id)
);
CREATE TABLE observations (
	job TEXT NOT NULL,
	device_kind TEXT NOT NULL,
	instances INTEGER NOT NULL,
	devices INTEGER NOT NULL,
	device_batch INTEGER NOT NULL,
	accumulation INTEGER NOT NULL,
	step_seconds DOUBLE NOT NULL,
	sync_seconds DOUBLE NOT NULL,
	steps DOUBLE NOT NULL,
	updated_seconds DOUBLE NOT NULL, era INTEGER DEFAULT '0' NOT NULL, settled_seconds DOUBLE DEFAULT '0' NOT NULL, run TEXT,
	CONSTRAINT pk_observations PRIMARY KEY (job, device_kind, instances, devices, device_batch, accumulation),
	CONSTRAINT fk_observations_job FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE owners (
	id INTEGER NOT NULL,
	kind VARCHAR(20) NOT NULL,
	name TEXT NOT NULL,
	person TEXT NOT NULL,
	team TEXT,
	CONSTRAINT pk_owners PRIMARY KEY (id)
);
CREATE TABLE people (
	name TEXT NOT NULL,
	role VARCHAR(20) NOT NULL,
	team TEXT,
	CONSTRAINT pk_people PRIMARY KEY (name)
);
CREATE TABLE pieces (
	sha256 TEXT NOT NULL,
	content BLOB NOT NULL,
	used_seconds DOUBLE NOT NULL,
	CONSTRAINT pk_pieces PRIMARY KEY (sha256)
);
CREATE TABLE plans (
	id INTEGER NOT NULL,
	tick INTEGER NOT NULL,
	at_seconds DOUBLE NOT NULL,
	document BLOB NOT NULL,
	CONSTRAINT pk_plans PRIMARY KEY (id)
);
CREATE TABLE programs (
	program TEXT NOT NULL,
	memory TEXT NOT NULL,
	CONSTRAINT pk_programs PRIMARY KEY (program)
);
CREATE TABLE refusals (
	offer TEXT NOT NULL,
	error_kind TEXT NOT NULL,
	in_a_row INTEGER NOT NULL,
	until_seconds DOUBLE NOT NULL, reason TEXT DEFAULT '' NOT NULL,
	CONSTRAINT pk_refusals PRIMARY KEY (offer)
);
CREATE TABLE samples (
	id INTEGER NOT NULL,
	job TEXT NOT NULL,
	at_seconds DOUBLE NOT NULL,
	progress_examples DOUBLE NOT NULL,
	batch INTEGER NOT NULL,
	learning_rate DOUBLE,
	goodput DOUBLE,
	noise_examples DOUBLE,
	loss DOUBLE,
	CONSTRAINT pk_samples PRIMARY KEY (id),
	CONSTRAINT fk_samples_job FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE settings (
	"key" TEXT NOT NULL,
	value TEXT NOT NULL,
	CONSTRAINT pk_settings PRIMARY KEY ("key")
);
CREATE TABLE studies (
	name TEXT NOT NULL,
	terms TEXT NOT NULL,
	budget_usd TEXT,
	CONSTRAINT pk_studies PRIMARY KEY (name)
);
CREATE TABLE time_days (
	day TEXT NOT NULL,
	used TEXT NOT NULL,
	CONSTRAINT pk_time_days PRIMARY KEY (day)
);
CREATE TABLE time_uses (
	instance TEXT NOT NULL,
	job TEXT NOT NULL,
	kept TEXT NOT NULL,
	CONSTRAINT pk_time_uses PRIMARY KEY (instance, job),
	CONSTRAINT fk_time_uses_instance FOREIGN KEY(instance) REFERENCES instances (id),
	CONSTRAINT fk_time_uses_job FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE trial_calls (
	id INTEGER NOT NULL,
	study TEXT NOT NULL,
	job TEXT NOT NULL,
	incarnation INTEGER NOT NULL,
	number INTEGER NOT NULL,
	text TEXT NOT NULL,
	answer TEXT,
	CONSTRAINT pk_trial_calls PRIMARY KEY (id),
	CONSTRAINT fk_trial_calls_job FOREIGN KEY(job) REFERENCES jobs (id),
	CONSTRAINT uq_trial_calls_job_incarnation_number UNIQUE (job, incarnation, number)
);
CREATE TABLE trials (
	id INTEGER NOT NULL,
	study TEXT NOT NULL,
	job TEXT NOT NULL,
	record TEXT NOT NULL,
	CONSTRAINT pk_trials PRIMARY KEY (id),
	CONSTRAINT fk_trials_job FOREIGN KEY(job) REFERENCES jobs (id),
	CONSTRAINT uq_trials_job UNIQUE (job)
);
CREATE INDEX ix_jobs_name ON jobs (name);
CREATE UNIQUE INDEX ix_instances_held ON instances (job, slot) WHERE phase <> 'ended';
CREATE INDEX ix_intents_state ON intents (state);
CREATE INDEX ix_ledger_job ON ledger (job);
CREATE INDEX ix_noise_job ON noise (job);
CREATE INDEX ix_plans_at_seconds ON plans (at_seconds);
CREATE INDEX ix_pieces_used_seconds ON pieces (used_seconds);
CREATE INDEX ix_decisions_job_id ON decisions (job, id);
CREATE INDEX ix_decisions_plan ON decisions ("plan");
CREATE INDEX ix_events_at_seconds ON events (at_seconds);
CREATE INDEX ix_events_job_id ON events (job, id);
CREATE TRIGGER ledger_refuses_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_refuses_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE INDEX ix_trial_calls_waiting ON trial_calls (study, id) WHERE answer IS NULL;
CREATE INDEX ix_trials_study ON trials (study);
CREATE INDEX ix_access_tokens_person ON access_tokens (person);
CREATE INDEX ix_node_tokens_instance ON node_tokens (instance);
CREATE UNIQUE INDEX ix_owners_kind_name_person ON owners (kind, name, person);
CREATE INDEX ix_audit_at_seconds ON audit (at_seconds);
CREATE INDEX ix_audit_subject_action ON audit (subject, action);
CREATE TRIGGER audit_refuses_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_refuses_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE INDEX ix_jobs_phase ON jobs (phase);
CREATE INDEX ix_jobs_person ON jobs (person);
CREATE INDEX ix_jobs_team ON jobs (team);
CREATE INDEX ix_jobs_study ON jobs (study);
CREATE INDEX ix_samples_job_id ON samples (job, id);
CREATE UNIQUE INDEX ix_notices_kind_subject_episode ON notices (kind, subject, episode);
CREATE INDEX ix_notices_ended_seconds ON notices (ended_seconds);
CREATE INDEX ix_deliveries_state_target_next_seconds ON deliveries (state, target, next_seconds);
CREATE INDEX ix_deliveries_notice ON deliveries (notice);
CREATE INDEX ix_time_uses_job ON time_uses (job);
CREATE INDEX ix_lost_work_job ON lost_work (job);
CREATE INDEX ix_kept_answers_at_seconds ON kept_answers (at_seconds);
CREATE INDEX ix_jobs_checkpoint_directory ON jobs (checkpoint_directory);
