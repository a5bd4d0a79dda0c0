BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE decisions (
	id INTEGER NOT NULL, 
	"plan" INTEGER NOT NULL, 
	job TEXT NOT NULL, 
	decision TEXT NOT NULL, 
	CONSTRAINT pk_decisions PRIMARY KEY (id), 
	CONSTRAINT fk_decisions_plan FOREIGN KEY("plan") REFERENCES plans (id)
);
INSERT INTO "decisions" VALUES(1,1,'digits','{"job":"digits","action":"grow","current":null,"target":{"offer":"local-small","instances":2,"devices_used":1},"reason":"grow","figures":{"surplus_usd_per_hour":0.1},"release_first":false,"placement":null}');
CREATE TABLE durations (
	job TEXT NOT NULL, 
	offer TEXT NOT NULL, 
	what TEXT NOT NULL, 
	mean_seconds DOUBLE NOT NULL, 
	count INTEGER NOT NULL, 
	CONSTRAINT pk_durations PRIMARY KEY (job, offer, what), 
	CONSTRAINT fk_durations_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "durations" VALUES('digits','','join pause',2.0,1);
INSERT INTO "durations" VALUES('digits','local-small','start',12.5,1);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	at_seconds DOUBLE NOT NULL, 
	job TEXT, 
	kind TEXT NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_events PRIMARY KEY (id)
);
INSERT INTO "events" VALUES(1,1800000003.0,'digits','resize','grow digits');
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
INSERT INTO "failures" VALUES(1,'text','text-0-1',1,1800000040.0,'{"instance":"text-0-1","attempt":1,"exit_code":1,"cause":"out of memory","signature":"oom","steps":7,"last_lines":["line 1","line 2"],"during_setup":false}');
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
	report_step INTEGER, 
	CONSTRAINT pk_instances PRIMARY KEY (id), 
	CONSTRAINT fk_instances_job FOREIGN KEY(job) REFERENCES jobs (id), 
	CONSTRAINT uq_instances_job_slot_generation UNIQUE (job, slot, generation)
);
INSERT INTO "instances" VALUES('digits-0-1','digits',0,1,'local-small',1,'0.0500',60,'present','training',1800000000.0,'i-digits-0-1',1800000001.0,1800000010.0,1800000010.0,NULL,NULL,1800000010.0,NULL,'{"image":"image:1"}',1800000000.0,100);
INSERT INTO "instances" VALUES('digits-1-1','digits',1,1,'local-small',1,'0.0500',60,'present','requested',1800000030.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}',NULL,NULL);
INSERT INTO "instances" VALUES('text-0-1','text',0,1,'local-small',1,'0.0500',60,'present','ended',1800000000.0,'i-text-0-1',1800000001.0,NULL,NULL,NULL,1800000100.0,NULL,NULL,'{}',NULL,NULL);
CREATE TABLE intents (
	id INTEGER NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	instance TEXT NOT NULL, 
	token TEXT NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	attempts INTEGER NOT NULL, 
	not_before_seconds DOUBLE NOT NULL, 
	error TEXT, 
	CONSTRAINT pk_intents PRIMARY KEY (id), 
	CONSTRAINT fk_intents_instance FOREIGN KEY(instance) REFERENCES instances (id), 
	CONSTRAINT uq_intents_instance_kind UNIQUE (instance, kind)
);
INSERT INTO "intents" VALUES(1,'launch','digits-0-1','token of digits-0-1','done',0,1800000000.0,NULL);
INSERT INTO "intents" VALUES(2,'launch','digits-1-1','token of digits-1-1','pending',0,1800000030.0,NULL);
INSERT INTO "intents" VALUES(3,'launch','text-0-1','token of text-0-1','done',0,1800000000.0,NULL);
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
	report_started_seconds DOUBLE, 
	CONSTRAINT pk_jobs PRIMARY KEY (number), 
	CONSTRAINT uq_jobs_id UNIQUE (id)
);
INSERT INTO "jobs" VALUES(1,'digits','digits','{"name":"digits","command":["python","train.py","--name","quote \" and ü"],"bundle":"abababababababababababababababababababababababababababababababab","environment":{"A":"1","B":""},"secrets":{"TOKEN":{"variable":"TOKEN","file":null},"KEY":{"variable":null,"file":"~/.k"}},"data":[{"source":"/datasets/digits","target":"data","read_only":false}],"setup":["pip install x","true"],"image":"image:1","batch":{"initial":64,"maximum":1024,"device_maximum":256,"adaptive":true},"instances":{"minimum":1,"maximum":4,"offers":["local-small","local-large"],"spot":false},"objective":{"preference":"value_of_time","value_of_time_usd_per_hour":40.0,"deadline_seconds":1800000000.1,"budget_usd":"500.10","confidence":0.9,"after_deadline":"balanced"},"checkpoint":{"directory":"/checkpoints","interval_seconds":300.0,"keep":3},"total_examples":1000000000.0,"retries":0,"requested_devices":null}','running',1800000000.0,1800000010.0,NULL,1,NULL,NULL,'[]','restart://host:7','{"step":100,"epoch":1,"progress_examples":6400.0,"total_examples":null,"batch":{"total":64,"device":64,"accumulation":0},"bounds":{"initial":64,"maximum":1024,"device_maximum":256,"adaptive":true},"replicas":1,"devices":1,"learning_rate":0.001,"parameter_bytes":4000000000,"noise":{"initial_batch":64,"gradient_square":0.1,"gradient_variance":0.2,"log_standard_deviation":0.3},"goodput_measured":null,"observations":[],"pauses":[],"checkpoint":{"step":90,"seconds":0.5,"bytes":1000,"error":null},"metrics":{"loss":Infinity,"accuracy":0.1},"engine":"restart"}',1800000020.0,1,1800000000.0);
INSERT INTO "jobs" VALUES(2,'text','text','{"name":"text","command":["python","train.py"],"bundle":null,"environment":{},"secrets":{},"data":[],"setup":[],"image":null,"batch":{"initial":null,"maximum":null,"device_maximum":null,"adaptive":false},"instances":{"minimum":1,"maximum":1,"offers":null,"spot":true},"objective":{"preference":"balanced","value_of_time_usd_per_hour":null,"deadline_seconds":null,"budget_usd":null,"confidence":0.9,"after_deadline":"balanced"},"checkpoint":{"directory":null,"interval_seconds":null,"keep":2},"total_examples":null,"retries":3,"requested_devices":null}','failed',1800000000.0,NULL,1800000100.0,1,NULL,'out of memory','["line 1","line 2"]',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE join_tokens (
	hash TEXT NOT NULL, 
	instance TEXT NOT NULL, 
	expires_seconds DOUBLE NOT NULL, 
	burned_seconds DOUBLE, 
	CONSTRAINT pk_join_tokens PRIMARY KEY (hash), 
	CONSTRAINT fk_join_tokens_instance FOREIGN KEY(instance) REFERENCES instances (id)
);
INSERT INTO "join_tokens" VALUES('0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a','digits-1-1',1800000900.0,NULL);
INSERT INTO "join_tokens" VALUES('0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b','digits-0-1',1800000900.0,1800000002.0);
CREATE TABLE ledger (
	id INTEGER NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	instance TEXT NOT NULL, 
	job TEXT NOT NULL, 
	offer TEXT NOT NULL, 
	usd_per_hour TEXT NOT NULL, 
	at_seconds DOUBLE NOT NULL, 
	minimum_billed_seconds INTEGER NOT NULL, 
	CONSTRAINT pk_ledger PRIMARY KEY (id), 
	CONSTRAINT fk_ledger_instance FOREIGN KEY(instance) REFERENCES instances (id), 
	CONSTRAINT fk_ledger_job FOREIGN KEY(job) REFERENCES jobs (id), 
	CONSTRAINT uq_ledger_instance_kind_at_seconds UNIQUE (instance, kind, at_seconds)
);
INSERT INTO "ledger" VALUES(1,'open','digits-0-1','digits','local-small','0.0500',1800000001.0,60);
INSERT INTO "ledger" VALUES(2,'open','text-0-1','text','local-small','0.0500',1800000001.0,60);
INSERT INTO "ledger" VALUES(3,'close','text-0-1','text','local-small','0.0500',1800000100.0,60);
CREATE TABLE models (
	job TEXT NOT NULL, 
	models TEXT NOT NULL, 
	CONSTRAINT pk_models PRIMARY KEY (job), 
	CONSTRAINT fk_models_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "models" VALUES('digits','{"cpu-core":{"device_kind":"cpu-core","point":{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},"draws":[{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5}],"measured":[[1,1],[2,4]],"size_errors":[]}}');
CREATE TABLE noise (
	id INTEGER NOT NULL, 
	job TEXT NOT NULL, 
	progress_examples DOUBLE NOT NULL, 
	noise TEXT NOT NULL, 
	CONSTRAINT pk_noise PRIMARY KEY (id), 
	CONSTRAINT fk_noise_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "noise" VALUES(1,'digits',6400.0,'{"initial_batch":64,"gradient_square":0.1,"gradient_variance":0.2,"log_standard_deviation":0.3}');
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
	updated_seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_observations PRIMARY KEY (job, device_kind, instances, devices, device_batch, accumulation), 
	CONSTRAINT fk_observations_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "observations" VALUES('digits','cpu-core',1,1,64,0,0.1,0.01,100.0,1800000020.0);
CREATE TABLE people (
	name TEXT NOT NULL, 
	token_hash TEXT NOT NULL, 
	CONSTRAINT pk_people PRIMARY KEY (name), 
	CONSTRAINT uq_people_token_hash UNIQUE (token_hash)
);
INSERT INTO "people" VALUES('ada','0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c');
CREATE TABLE pieces (
	sha256 TEXT NOT NULL, 
	content BLOB NOT NULL, 
	used_seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_pieces PRIMARY KEY (sha256)
);
INSERT INTO "pieces" VALUES('5330b3c42f57c2fcefe5dcfda892678c0b6ef41438a6d48c7983fd5ce1403372',X'789C5590C16EC32010447FA5DAB31DD12AEDC1BF525908C35A5E05762DC04993C8FF5E48E43AE584DE0C33ECDE41C6116382EEFB0EE4A0032FD6F83605E33D3430473993C3B8090511A76CD8A2CED7190BDFAC37617CB1CD4BB493491509B70E836157B0C333592C7DEFDB5D9F886BB19D97D64AC4625A92D333463DC9529BD5417D2A55F8209275422BEC6AC24135C0982F124F7AB8664C8F474F1DBA0FB59DEA8B68BDA1905E721F3C105358821EC87B747BF857D1D2642296A4D1F8846BDF80A740F9B92B36E16FDAB76DA8F273A65CF00E82F9A9F9D01D9B7DD5FF96DCAFFDFA0B36FC8355',1800000000.0);
INSERT INTO "pieces" VALUES('5a74496833d5ffcaf9da858ac26c6daa8853b156335345b91512b94472818ad8',X'789CED944B0E82301445F7F2C69500D1095B21A429ED0B34D24FFA112361EF026A90E8028C617C4E4EDE1DB403701B0FDC388462008117C9919EA51650AC8480355287D9609D6D19E546D918907AE4460B0F459A64046A0C1F885A7414AF4CD90E672D9DBC47837167BC7F4FA4F9B3B1454B4298587752378BB7467A195AA93791D7215BF425329B0D538A419125A7918070AC9F1AE55FAFDCC7EDE37E6F5C454021F3D1E1F4F1946546B28A9439395613F0F286149D336E7E9CD538DE012264A6CE',1800000000.0);
CREATE TABLE plans (
	id INTEGER NOT NULL, 
	tick INTEGER NOT NULL, 
	at_seconds DOUBLE NOT NULL, 
	document BLOB NOT NULL, 
	CONSTRAINT pk_plans PRIMARY KEY (id)
);
INSERT INTO "plans" VALUES(1,1,1800000000.0,X'789C5D54ED72A3300C7C958E7FE732808140DEA0CF90E930C216E09EF9A86D92DE64FAEE27014D68F965CBD26A772D73177E80C9776310E7BB18C65BE5518D83F6E21C17D1F61DA383189B061D452F6F07614D6FC2B67E1F6B5EDD85D1E22CB469F984D2EB7754C15C91612787548C83A29DA8C102AD34255DC1CE588D4D154C8FD5EC7535A1ABBA7176E23CCCD61E8446D0D60CF864B5C6EB59B718B88410B3631C111A253446AF5DA2637910D00482FB86D8B7FE3A0833F8C01BCF047B33987EEE49F341F4F0B9AED3A7E8B5A99FD8A5E066A4FA1A82EAB8964A83012BCE79BA2B8EA32465FA57A3B07A44932C275A1AA6D5990DCACF35F91950EFBC3F95EBB778EFB0076A33B4157E423F5926FD4A62A9F33FA685C366457424011D5ACDC416F2A4DA8E0AEC1FDF83B5E287EEF89BA0A76A72E51C1399E0A8156F56CDFDA8D1B24774348CC6E34E72B579C0C25B07DA300FFF3183C38DCA237A056760BB998406686C2BA6A1C1E98A394030E3C08792FDB819C225B9CBEC0071DB19B3FAE1C3E876D19D19015C781EDC7FA83FCB6344F8FA86D6FE9EA81EC1CF7B4C192DC937303F6E66B9901B9AB60B0F361F3311C255C9E2EC0A395950D893FCC700A1E304A605212C3E6F35BFF05920E9E0ED26694F6105531D0CEDEFF0728173E8B61DBDCF79802B180BB5A5BE97CD0E0BAE45F1C68D88E4F0C4C857D11C64961A95F17433DB5BF71D68FA434CCE6CEF66417B79C8A63BA7E216A6C75B5E811755310F50E0B48B80175E8AB72F7E31EE2F067EC55246B55469D2642795348A7E1999568D86A24CF253A1A23AC7268D535940AED3429DCA42363A5318A79194A7443C87F5223238A569991752EAAC69143425E16405A82457B906288A4CD671964B99C934ABCB388B93BA4CD35352C405E882A8FD078B87B726');
CREATE TABLE refusals (
	offer TEXT NOT NULL, 
	error_kind TEXT NOT NULL, 
	in_a_row INTEGER NOT NULL, 
	until_seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_refusals PRIMARY KEY (offer)
);
CREATE TABLE settings (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_settings PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('controller_id','1f0c2d34-5b6a-4c7d-8e9f-0a1b2c3d4e5f');
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
COMMIT;
