BEGIN TRANSACTION;
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
INSERT INTO "access_tokens" VALUES('0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c','ada','invitation',1800000000.0,'owner',NULL,NULL,0,NULL,NULL);
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
INSERT INTO "audit" VALUES(1,1800000000.0,'ada','invitation','operator','stop job','text','running','');
CREATE TABLE budgets (
	kind VARCHAR(20) NOT NULL,
	name TEXT NOT NULL,
	month_usd TEXT,
	total_usd TEXT,
	hourly_usd TEXT,
	zone TEXT NOT NULL,
	CONSTRAINT pk_budgets PRIMARY KEY (kind, name)
);
INSERT INTO "budgets" VALUES('team','nlp','500',NULL,NULL,'Europe/Berlin');
CREATE TABLE decisions (
	id INTEGER NOT NULL,
	"plan" INTEGER NOT NULL,
	job TEXT NOT NULL,
	decision TEXT NOT NULL,
	CONSTRAINT pk_decisions PRIMARY KEY (id),
	CONSTRAINT fk_decisions_plan FOREIGN KEY("plan") REFERENCES plans (id)
);
INSERT INTO "decisions" VALUES(1,1,'digits','{"job":"digits","action":"grow","current":null,"target":{"offer":"local-small","instances":2,"devices_used":1},"reason":"grow","figures":{"surplus_usd_per_hour":0.1},"release_first":false,"placement":null,"ground":"","note":""}');
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
INSERT INTO "deliveries" VALUES(1,1,'ops','waiting',0,1800000100.0,NULL,NULL);
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
INSERT INTO "failures" VALUES(1,'text','text-0-1',1,1800000040.0,'{"instance":"text-0-1","attempt":1,"exit_code":1,"cause":"out of memory","signature":"oom","steps":7,"last_lines":["line 1","line 2"],"during_setup":false,"reason":null,"device_limit":null,"category":"unknown"}');
CREATE TABLE incarnations (
	job TEXT NOT NULL,
	number INTEGER NOT NULL,
	instance TEXT NOT NULL,
	started_seconds DOUBLE NOT NULL,
	CONSTRAINT pk_incarnations PRIMARY KEY (job, number),
	CONSTRAINT fk_incarnations_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "incarnations" VALUES('sweep-0',1,'sweep-0-0-1',1800000000.0);
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
INSERT INTO "instances" VALUES('digits-0-1','digits',0,1,'local-small',1,'0.0500',60,'present','training',1800000000.0,'i-digits-0-1',1800000001.0,1800000010.0,1800000010.0,NULL,NULL,1800000010.0,NULL,'{"image":"image:1"}',1800000000.0,100,'0','{"upload_usd_per_gb":"0","download_usd_per_gb":"0","told":null,"owed":{"sent_bytes":0,"fetched_bytes":0},"before":null,"line_seconds":null}');
INSERT INTO "instances" VALUES('digits-1-1','digits',1,1,'local-small',1,'0.0500',60,'present','requested',1800000030.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}',NULL,NULL,'0','{"upload_usd_per_gb":"0","download_usd_per_gb":"0","told":null,"owed":{"sent_bytes":0,"fetched_bytes":0},"before":null,"line_seconds":null}');
INSERT INTO "instances" VALUES('text-0-1','text',0,1,'local-small',1,'0.0500',60,'present','ended',1800000000.0,'i-text-0-1',1800000001.0,NULL,NULL,NULL,1800000100.0,NULL,NULL,'{}',NULL,NULL,'0','{"upload_usd_per_gb":"0","download_usd_per_gb":"0","told":null,"owed":{"sent_bytes":0,"fetched_bytes":0},"before":null,"line_seconds":null}');
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
INSERT INTO "intents" VALUES(1,'launch','digits-0-1','token of digits-0-1','done',0,1800000000.0,NULL,NULL);
INSERT INTO "intents" VALUES(2,'launch','digits-1-1','token of digits-1-1','pending',0,1800000030.0,NULL,NULL);
INSERT INTO "intents" VALUES(3,'launch','text-0-1','token of text-0-1','done',0,1800000000.0,NULL,NULL);
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
INSERT INTO "jobs" VALUES(1,'digits','digits','{"name":"digits","command":["python","train.py","--name","quote \" and ü"],"bundle":"abababababababababababababababababababababababababababababababab","environment":{"A":"1","B":""},"secrets":{"TOKEN":{"variable":"TOKEN","file":null},"KEY":{"variable":null,"file":"~/.k"}},"data":[{"source":"/datasets/digits","target":"data","read_only":false}],"setup":["pip install x","true"],"image":"image:1","batch":{"initial":64,"maximum":1024,"device_maximum":256,"adaptive":true,"kind_maxima":[]},"instances":{"minimum":1,"maximum":4,"offers":["local-small","local-large"],"spot":false,"maxima":[],"gpus":null,"max_usd_per_hour":null,"max_instance_usd_per_hour":null},"objective":{"preference":"value_of_time","value_of_time_usd_per_hour":40.0,"deadline_seconds":1800000000.1,"budget_usd":"500.10","confidence":0.9,"after_deadline":"balanced","cap_usd":null,"is_uncapped":false},"checkpoint":{"directory":"/checkpoints","interval_seconds":300.0,"keep":3,"adopt":null},"total_examples":1000000000.0,"retries":0,"requested_devices":null,"program":null,"parallelism":{"pipeline":1,"microbatches":1,"near_instances":null,"shard":1,"shards":[],"auto_shard":false,"has_chosen_shard":false},"priority":1.0,"person":null,"study":null,"distributed":false,"outputs":{"patterns":null,"maximum_bytes":5000000000},"resumes":null,"restart":null,"model":null,"stalls":"tell","team":null}','running',1800000000.0,1800000010.0,NULL,1,NULL,NULL,'[]','roster://host:7','{"step":100,"epoch":1,"progress_examples":6400.0,"total_examples":null,"batch":{"total":64,"device":64,"accumulation":0},"bounds":{"initial":64,"maximum":1024,"device_maximum":256,"adaptive":true,"kind_maxima":[]},"replicas":1,"devices":1,"learning_rate":0.001,"parameter_bytes":4000000000,"noise":{"initial_batch":64,"gradient_square":0.1,"gradient_variance":0.2,"log_standard_deviation":0.3},"goodput_measured":null,"observations":[],"pauses":[],"checkpoint":{"step":90,"seconds":0.5,"bytes":1000,"error":null,"pause_seconds":null},"metrics":{"loss":Infinity,"accuracy":0.1},"engine":"roster","quality":[],"skipped_steps":0,"state_bytes":null,"memory":[],"steps":null,"trained_seconds":null}',1800000020.0,1,1800000000.0,1,NULL,'owner',NULL,NULL,1800000020.0,1.0,1,'/checkpoints');
INSERT INTO "jobs" VALUES(2,'text','text','{"name":"text","command":["python","train.py"],"bundle":null,"environment":{},"secrets":{},"data":[],"setup":[],"image":null,"batch":{"initial":null,"maximum":null,"device_maximum":null,"adaptive":false,"kind_maxima":[]},"instances":{"minimum":1,"maximum":1,"offers":null,"spot":true,"maxima":[],"gpus":null,"max_usd_per_hour":null,"max_instance_usd_per_hour":null},"objective":{"preference":"balanced","value_of_time_usd_per_hour":null,"deadline_seconds":null,"budget_usd":null,"confidence":0.9,"after_deadline":"balanced","cap_usd":null,"is_uncapped":false},"checkpoint":{"directory":null,"interval_seconds":null,"keep":2,"adopt":null},"total_examples":null,"retries":3,"requested_devices":null,"program":null,"parallelism":{"pipeline":1,"microbatches":1,"near_instances":null,"shard":1,"shards":[],"auto_shard":false,"has_chosen_shard":false},"priority":1.0,"person":null,"study":null,"distributed":false,"outputs":{"patterns":null,"maximum_bytes":5000000000},"resumes":null,"restart":null,"model":null,"stalls":"tell","team":null}','failed',1800000000.0,NULL,1800000100.0,1,NULL,'out of memory','["line 1","line 2"]',NULL,NULL,NULL,NULL,NULL,0,NULL,'owner',NULL,NULL,NULL,1.0,0,NULL);
INSERT INTO "jobs" VALUES(3,'sweep-0','sweep-0','{"name":"sweep-0","command":["python","train.py"],"bundle":null,"environment":{},"secrets":{},"data":[],"setup":[],"image":null,"batch":{"initial":null,"maximum":null,"device_maximum":null,"adaptive":false,"kind_maxima":[]},"instances":{"minimum":1,"maximum":1,"offers":null,"spot":true,"maxima":[],"gpus":null,"max_usd_per_hour":null,"max_instance_usd_per_hour":null},"objective":{"preference":"balanced","value_of_time_usd_per_hour":null,"deadline_seconds":null,"budget_usd":null,"confidence":0.9,"after_deadline":"balanced","cap_usd":null,"is_uncapped":false},"checkpoint":{"directory":null,"interval_seconds":null,"keep":2,"adopt":null},"total_examples":null,"retries":3,"requested_devices":null,"program":null,"parallelism":{"pipeline":1,"microbatches":1,"near_instances":null,"shard":1,"shards":[],"auto_shard":false,"has_chosen_shard":false},"priority":1.0,"person":null,"study":"sweep","distributed":false,"outputs":{"patterns":null,"maximum_bytes":5000000000},"resumes":null,"restart":null,"model":null,"stalls":"tell","team":null}','pending',1800000000.0,NULL,NULL,1,NULL,NULL,'[]',NULL,NULL,NULL,NULL,NULL,0,NULL,'owner',NULL,'sweep',NULL,1.0,0,NULL);
CREATE TABLE join_tokens (
	hash TEXT NOT NULL,
	instance TEXT NOT NULL,
	expires_seconds DOUBLE NOT NULL,
	burned_seconds DOUBLE, key_hash TEXT,
	CONSTRAINT pk_join_tokens PRIMARY KEY (hash),
	CONSTRAINT fk_join_tokens_instance FOREIGN KEY(instance) REFERENCES instances (id)
);
INSERT INTO "join_tokens" VALUES('0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a','digits-1-1',1800000900.0,NULL,NULL);
INSERT INTO "join_tokens" VALUES('0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b','digits-0-1',1800000900.0,1800000002.0,NULL);
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
INSERT INTO "leases" VALUES('sweep','driver-1',1800000060.0);
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
INSERT INTO "ledger" VALUES(1,'open','digits-0-1','digits','local-small','0.0500',1800000001.0,60,'0','0',0,0);
INSERT INTO "ledger" VALUES(2,'open','text-0-1','text','local-small','0.0500',1800000001.0,60,'0','0',0,0);
INSERT INTO "ledger" VALUES(3,'close','text-0-1','text','local-small','0.0500',1800000100.0,60,'0','0',0,0);
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
INSERT INTO "models" VALUES('digits','{"cpu-core":{"device_kind":"cpu-core","point":{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},"draws":[{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5}],"measured":[[1,1],[2,4]],"size_errors":[],"batch_errors":null,"fit_error":0.0}}');
CREATE TABLE node_tokens (
	hash TEXT NOT NULL,
	instance TEXT NOT NULL,
	issued_seconds DOUBLE NOT NULL,
	expires_seconds DOUBLE NOT NULL,
	CONSTRAINT pk_node_tokens PRIMARY KEY (hash),
	CONSTRAINT fk_node_tokens_instance FOREIGN KEY(instance) REFERENCES instances (id)
);
INSERT INTO "node_tokens" VALUES('0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d','digits-0-1',1800000000.0,1800004200.0);
CREATE TABLE noise (
	id INTEGER NOT NULL,
	job TEXT NOT NULL,
	progress_examples DOUBLE NOT NULL,
	noise TEXT NOT NULL,
	CONSTRAINT pk_noise PRIMARY KEY (id),
	CONSTRAINT fk_noise_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "noise" VALUES(1,'digits',6400.0,'{"initial_batch":64,"gradient_square":0.1,"gradient_variance":0.2,"log_standard_deviation":0.3}');
CREATE TABLE notices (
	id INTEGER NOT NULL,
	kind VARCHAR(20) NOT NULL,
	subject TEXT NOT NULL,
	episode INTEGER NOT NULL,
	ended_seconds DOUBLE,
	notice TEXT NOT NULL,
	CONSTRAINT pk_notices PRIMARY KEY (id)
);
INSERT INTO "notices" VALUES(1,'job.failed','text',1,1800000100.0,'{"key":{"kind":"job.failed","subject":"text","episode":1},"at_seconds":1800000100.0,"text":"text failed","job":"text","person":null,"team":null,"is_trial":false,"figures":{}}');
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
INSERT INTO "observations" VALUES('digits','cpu-core',1,1,64,0,0.1,0.01,100.0,1800000020.0,0,0.0,NULL);
CREATE TABLE owners (
	id INTEGER NOT NULL,
	kind VARCHAR(20) NOT NULL,
	name TEXT NOT NULL,
	person TEXT NOT NULL,
	team TEXT,
	CONSTRAINT pk_owners PRIMARY KEY (id)
);
INSERT INTO "owners" VALUES(1,'study','sweep','owner',NULL);
INSERT INTO "owners" VALUES(2,'bundle','0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a','ada','nlp');
CREATE TABLE people (
	name TEXT NOT NULL,
	role VARCHAR(20) NOT NULL,
	team TEXT,
	CONSTRAINT pk_people PRIMARY KEY (name)
);
INSERT INTO "people" VALUES('ada','operator',NULL);
CREATE TABLE pieces (
	sha256 TEXT NOT NULL,
	content BLOB NOT NULL,
	used_seconds DOUBLE NOT NULL,
	CONSTRAINT pk_pieces PRIMARY KEY (sha256)
);
INSERT INTO "pieces" VALUES('0cb3884e335a5d458f4a0c5b735c94e9adb76ba923efd7211fcc1689597dcf85',X'789C6D92DD6E83300C855F65F23554ACDA76C1AB4C551412B3664DEC283FFD59D5775FD28E42AB71059F8FCFC171CEC0E3882142FF7906A3A107CB4ADA363A692D34E003EF8DC630150A3214932485229D3C163E497F987021F339A8AD8C1531B51A9D245DB0C6BD5158F25EA777B133548395CFADE2804594A3161E83D872AEC9DDAA7BEFBAC207E624222A265D1D565D0384E9C061278653C2786DBAD5A15F77D35375019595C6C585EF953B43C6652706632DEAD9FCA3D4E256062C4EA3B4111B188B64165CBB3325B36094AD6D008F29C8289E8780FBCF96AF3AA4B72CF55DF635FC89341FE8FFCA371B7A0EE3A0AB2470F6375B1FEA99C612AA7041F463E365D38035CEA4DBE649BAFBEE5EA615D5F14C2A78064E1EEB6941FFD6CC17E7E1CA6C2E9BCB2F28C7CA9B',1800000000.0);
INSERT INTO "pieces" VALUES('c3597063e0c7c5721c3213704b80b7d33618c3cba68e9eadc483491012c0f712',X'789C6D54ED6EEA300C7D97FCE6A29616107D83FB0CD314B98929D94D932E1F3084F6EED7494B296C932651DB393E3EFEB8B10FDB7AD6BCDD9892AC6152752A78B662B6FD4011D41959736383C3233A3482BE580B1AE897A4A033E888DC1E79503DF2E8251FD0F1938D8E35266ABD6212416A65907B14D6487FB7B7517618D21342DCAECB82D028E0A8E498A5581F560C8E81E0EE10CFA9050CE3EB114F791E0DD906723647D01EBFC9687C48F13ED5D02BA3FAD8B3A65CB11EBEC6DF35157AA4D2665E7EB08135C1459CA280B4795FB16E88730CD97FAD35D9EF297F0920422D04714A64884B50A059B3AB176CCA625327C9CE8A0066EB66BB2329240C6337466EFF9491FC4190B07D6C7B1502CA87D4E5FE30FE15EB62C51CF640794DC7F10BFA412759FE92E244E59A0A4733F5A358934427D43231CDF290F4DA0AD07F7C0F5AB32765CB3B63EA804FEA974426384A8573777A2B51A72E90CB58E571A1019F44494A740EA44A3CFC6704871395D97A06A7601A8FCD8A28753CD190E0244F1C20286B92B34A7A5C14E152B9798081B82D8419F5F0C1BA8575214600171E8EDB53F54DB52E085F5E50EBD7B1EE117C5C6256597A7142F16FB0CA2C405F1DF48F8E16EA157211D25E03CE2FC1B9EB0BDA512D1925B1B5F5FE19908C17504F6392DF5E5075A7304BF319491D1C65CD6D1EC90C1A04F6D48B795F88B312B99F10426EFAF4E6053FA94DA2A6CF49DF25857BA960BA9FE63CEBAFA0A93A52DB70C8578A8F676CAA9076249C66CECE7694DD2FC63E33CA83C8457469ABC6D034F4DCA1D0A07AFF63BF6926358DC77810C0A7BBF7C2D48728AFF70FEB24DDCC1FD5E4896DE7A8D646725252F0697627CAE068D2502BDFE7E955038E1730DD2E259CCD3B336D9F41707CB190539A136D45F6E75F7E621D83E5932B5F49AA992A1127EBD13C3948C548FB10C677E3B99E40A4D59A522E26E6FBFDB1E36F6C57EEF6D016B02D00AA831075516225A0DE171540BD1165BDDD96FB4A82A8C45E5635E041D6FB12F6024A21E49EBD7FFF07BC5B4D6F',1800000000.0);
INSERT INTO "pieces" VALUES('6167ab0a50aa39cc401e3ca4703aa42c1455173dac3c7d34ae9d471a7ca1ccd7',X'789CED94CB6EC2301045FF65D60625A86CF22B51644DEC8158F8253F4855947FAF135A68543E0021B6F71E1DF92E3C17103E6F840B04CD05249D95207E525642736F1878A76C9A09D47E402E9CF139118F249C95119A6A5B33E829FDABB8A7C0E9138DD7346355E1AE0E14C1C5F85751ED7E1CEB6A5148977BADEC71E1EE9251A541D995E4F721EBEA8164268F680C42536FF7130319702C8EF6A557BEC7BDC73DDFB88E81218C3950393C6D5BB3BA63ED8E7D74A588EA8B3885E0C2FC394BD06312C32DB1596B060795AEC9A29FA66F7B83B335',1800000000.0);
CREATE TABLE plans (
	id INTEGER NOT NULL,
	tick INTEGER NOT NULL,
	at_seconds DOUBLE NOT NULL,
	document BLOB NOT NULL,
	CONSTRAINT pk_plans PRIMARY KEY (id)
);
INSERT INTO "plans" VALUES(1,1,1800000000.0,X'789C6550D16EC3200CFC958AE7AE821002E9AF4C53656CA765A3210A49F650F5DF479A687B184FE6CE3E9FEF21720F43BEA5499C1FA24FDF97CC987ACAE2AC9CDCDF491E45EA3A1E0BFAFE711431DCC3B4D79FC9EFD5DCC30221828F5C001113427C8B305E591476E42142FFA7DEBC546358B87C1ECFA3C8D34C817FB5281460F44C1BE067BAF2B6B3F4AE52AB5F620C39A47E9FCA37A072C130067CA96E1E0EC4CB06C8932AC357182E73A6CBC0E36E6765A43A96F3A797010187B514FFF6DE61FCE2929490E8B573356B6DC0506D5C578344E3AD36D8D6DC0279DB78682BCD1DD94AA90E5135AE35AD25EC9C11452B11C7DDB8875C3213A80B2F1BCD122D9A3286BA52DACADA3BE92D69DD28871A3D348E5B06C2DAE9BA555255283BAB2AB1C67C4FCB16DAF307AB0C956E');
CREATE TABLE programs (
	program TEXT NOT NULL,
	memory TEXT NOT NULL,
	CONSTRAINT pk_programs PRIMARY KEY (program)
);
INSERT INTO "programs" VALUES('digits','{"program":"digits","jobs":2,"recent_jobs":["digits-2","digits"],"updated_seconds":1800000000.0,"initial_batch":64,"parameter_bytes":4000000000,"bounds":{"initial":64,"maximum":1024,"device_maximum":256,"adaptive":true,"kind_maxima":[]},"total_examples":1000000000.0,"observations":[{"device_kind":"cpu-core","instances":1,"devices":1,"device_batch":64,"accumulation":0,"step_seconds":0.1,"sync_seconds":0.01,"steps":100,"era":0,"is_settled":true},{"device_kind":"cpu-core","instances":2,"devices":2,"device_batch":64,"accumulation":0,"step_seconds":0.1,"sync_seconds":0.01,"steps":100,"era":0,"is_settled":true}],"noise":{"progress_examples":[1.0,10.0],"noise_examples":[500.0,700.0]},"start_seconds":{"local-small":12.5},"parallelism":{"pipeline":1,"microbatches":1,"near_instances":null,"shard":1,"shards":[],"auto_shard":false,"has_chosen_shard":false},"peaks":[]}');
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
INSERT INTO "samples" VALUES(1,'digits',1800000020.0,6400.0,64,0.001,NULL,128.0,NULL);
CREATE TABLE settings (
	"key" TEXT NOT NULL,
	value TEXT NOT NULL,
	CONSTRAINT pk_settings PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('controller_id','1f0c2d34-5b6a-4c7d-8e9f-0a1b2c3d4e5f');
INSERT INTO "settings" VALUES('frozen','1800000050.0 owner');
CREATE TABLE studies (
	name TEXT NOT NULL,
	terms TEXT NOT NULL,
	budget_usd TEXT,
	CONSTRAINT pk_studies PRIMARY KEY (name)
);
INSERT INTO "studies" VALUES('sweep','{"objective":{"preference":"balanced","value_of_time_usd_per_hour":null,"deadline_seconds":null,"budget_usd":"12.50","confidence":0.9,"after_deadline":"balanced","cap_usd":null,"is_uncapped":false},"directions":["minimize"],"to_begin":3,"full_work":null,"synchronous":false,"later":[],"best":null}',NULL);
CREATE TABLE time_days (
	day TEXT NOT NULL,
	used TEXT NOT NULL,
	CONSTRAINT pk_time_days PRIMARY KEY (day)
);
INSERT INTO "time_days" VALUES('2027-01-15','{"useful_seconds":10.0,"boot_seconds":7.0,"idle_seconds":0.0,"pause_seconds":0.0,"lost_seconds":0.0}');
CREATE TABLE time_uses (
	instance TEXT NOT NULL,
	job TEXT NOT NULL,
	kept TEXT NOT NULL,
	CONSTRAINT pk_time_uses PRIMARY KEY (instance, job),
	CONSTRAINT fk_time_uses_instance FOREIGN KEY(instance) REFERENCES instances (id),
	CONSTRAINT fk_time_uses_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "time_uses" VALUES('digits-0-1','digits','{"count":{"begun_seconds":1800000005.0,"use":{"useful_seconds":10.0,"boot_seconds":2.0,"idle_seconds":0.0,"pause_seconds":0.0,"lost_seconds":0.0},"present":"useful"},"begun_seconds":1800000005.0,"earlier":{"useful_seconds":0.0,"boot_seconds":0.0,"idle_seconds":0.0,"pause_seconds":0.0,"lost_seconds":0.0}}');
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
INSERT INTO "trial_calls" VALUES(1,'sweep','sweep-0',1,1,'report 0.5','go on');
INSERT INTO "trial_calls" VALUES(2,'sweep','sweep-0',1,2,'report 0.6',NULL);
CREATE TABLE trials (
	id INTEGER NOT NULL,
	study TEXT NOT NULL,
	job TEXT NOT NULL,
	record TEXT NOT NULL,
	CONSTRAINT pk_trials PRIMARY KEY (id),
	CONSTRAINT fk_trials_job FOREIGN KEY(job) REFERENCES jobs (id),
	CONSTRAINT uq_trials_job UNIQUE (job)
);
INSERT INTO "trials" VALUES(1,'sweep','sweep-0','{"stands":{"job":"sweep-0","progress":2.0,"decided_at":null,"features":{},"reports":[],"pauses":false,"has_ended":false},"told_seconds":1800000005.0,"trained":{"offer":"local-small","instances":1,"devices_used":1},"speeds":[],"heard":[]}');
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
COMMIT;
